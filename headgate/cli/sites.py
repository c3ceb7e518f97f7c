"""The sites a person has logged in to: addresses and issuers, no secrets."""

from pathlib import Path

import msgspec

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure
from headgate.cli.site_names import Domain, host_of
from headgate.client import LoginNode, Site


class SavedSite(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway and how tokens for it are had; `url` is without a final slash.

    `audience` is the gateway's own name in tokens, `token_translator` the address and name of the
    service that gives SSH certificates; empty: the gateway did not say. `accepted` are names beyond
    the site's own that the person lets it speak for, `wished` scopes that the person asks for.
    `left_out` are hosts that it named as its login nodes, and may not.
    """

    url: str
    issuer: str
    client_id: str
    scopes: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    insecure: bool = False
    audience: str = ""
    token_translator: str = ""
    login_nodes: tuple[LoginNode, ...] = ()
    accepted: tuple[str, ...] = ()
    wished: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def described(self, site: Site) -> "SavedSite":
        """The same with what its gateway says of it."""
        return msgspec.structs.replace(
            self,
            audience=site.url,
            token_translator=(site.token_translator or "").rstrip("/"),
            login_nodes=tuple(site.login_nodes),
            left_out=(),
        )

    def within(self, domain: Domain) -> "SavedSite":
        """The same without login nodes that are not the site's own."""
        own = tuple(node for node in self.login_nodes if domain.has_host(node.host))
        foreign = (node.host for node in self.login_nodes if node not in own)
        return msgspec.structs.replace(
            self, login_nodes=own, left_out=tuple(dict.fromkeys((*self.left_out, *foreign)))
        )


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    default: str = ""
    sites: tuple[SavedSite, ...] = ()


class SavedSites:
    """The file of remembered sites; the one logged in to last is the default."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "sites.json"

    def all(self) -> tuple[SavedSite, ...]:
        """Every site, the default first, each with what is its own."""
        file = self._read()
        found = sorted(file.sites, key=lambda site: site.url != file.default)
        return tuple(site.within(_domain(site, file.sites)) for site in found)

    def domain(self, site: SavedSite) -> Domain:
        """The names that a site may speak for, beside the others that are remembered."""
        return _domain(site, self._read().sites)

    def within(self, site: SavedSite) -> SavedSite:
        """A site that may not be remembered, with what is its own."""
        return site.within(self.domain(site))

    def find(self, wish: str) -> SavedSite | None:
        """The site of that address or host name, or the default for an empty wish."""
        sites = self.all()
        if not wish:
            return sites[0] if sites else None
        url = normal(wish)
        return next((s for s in sites if s.url == url or _host(s.url) == wish), None)

    def remember(self, site: SavedSite) -> None:
        """Add or replace a site and make it the default."""
        with private_files.lock(self._path):
            others = [s for s in self._read().sites if s.url != site.url]
            self._write(_File(default=site.url, sites=(site, *others)))

    def update(self, site: SavedSite) -> None:
        """Replace what is remembered of a site, if it is; which one is the default stays."""
        with private_files.lock(self._path):
            file = self._read()
            sites = tuple(site if s.url == site.url else s for s in file.sites)
            if sites != file.sites:
                self._write(msgspec.structs.replace(file, sites=sites))

    def _read(self) -> _File:
        content = private_files.read(self._path)
        if content is None:
            return _File()
        try:
            return msgspec.json.decode(content, type=_File)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandFailure(
                f"{self._path} is damaged ({error}).", advice="Remove it and log in again."
            ) from error

    def _write(self, file: _File) -> None:
        text = msgspec.json.format(msgspec.json.encode(file), indent=2)
        private_files.write(self._path, text + b"\n")


def _domain(site: SavedSite, others: tuple[SavedSite, ...]) -> Domain:
    hosts = dict.fromkeys(host_of(other.url) for other in others if other.url != site.url)
    return Domain(host_of(site.url), site.accepted, tuple(hosts))


def normal(url: str) -> str:
    """An address as it is remembered: with a scheme, without final slashes."""
    address = url.strip().rstrip("/")
    return address if "://" in address else f"https://{address}"


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]
