"""OpenSSH key revocation lists, built without ssh-keygen. Source: OpenSSH PROTOCOL.krl."""

from dataclasses import dataclass
from datetime import datetime

MAGIC = b"SSHKRL\n\0"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class RevocationList:
    """A list that revokes nothing; `version` grows with each change of its contents."""

    version: int
    generated_at: datetime
    comment: str = ""

    def encode(self) -> bytes:
        """The file that sshd's RevokedKeys reads."""
        comment = self.comment.encode()
        return b"".join(
            (
                MAGIC,
                FORMAT_VERSION.to_bytes(4, "big"),
                self.version.to_bytes(8, "big"),
                int(self.generated_at.timestamp()).to_bytes(8, "big"),
                (0).to_bytes(8, "big"),  # flags: none are defined
                (0).to_bytes(4, "big"),  # reserved
                len(comment).to_bytes(4, "big"),
                comment,
            )
        )
