"""Login nodes: what their sshd is told, and the proof that it is so."""
