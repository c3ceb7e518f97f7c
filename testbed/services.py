"""The suite's services at a test site, as components: what runs, as whom, after what."""

from collections.abc import Sequence

from testbed import agents, suite
from testbed.components import Accepts, Answers, Component, Ends, Greets
from testbed.peer_keys import make_peer_key


def users() -> tuple[str, ...]:
    """The system accounts that the services run as."""
    return (
        suite.ISSUER,
        suite.SIGNER,
        suite.TOKENS,
        suite.FRONTDOOR,
        suite.ACCOUNTS,
        suite.GATEWAY,
        suite.INFO,
        suite.PROBE,
    )


def prepare(at: suite.Suite) -> tuple[Component, ...]:
    """Write keys and settings of all services; the components that run them."""
    for service in users():
        at.files.make(f"var/{service}", owner=service, mode=0o700)
    at.files.make("var/signer", owner=suite.SIGNER)
    tokens_key = make_peer_key(at.files, suite.TOKENS)
    gateway_key = make_peer_key(at.files, suite.GATEWAY)
    suite.issuer(at)
    suite.signer(at)
    frontdoor_key = make_peer_key(at.files, suite.FRONTDOOR) if at.frontdoor else None
    suite.tokens(at, gateway_key, make_peer_key(at.files, suite.ACCOUNTS), frontdoor_key)
    suite.accounts(at, [(suite.TOKENS, tokens_key), (suite.GATEWAY, gateway_key)])
    suite.gateway(at)
    agents.info(at)
    agents.probe(at)
    if at.frontdoor is None:
        return _components(at)
    suite.frontdoor(at, at.frontdoor)
    return (*_components(at), _frontdoor(at, at.frontdoor))


def _frontdoor(at: suite.Suite, service: suite.SshService) -> Component:
    module = (str(at.python), "-P", "-m", suite.MODULES[suite.FRONTDOOR])
    return Component(
        name="frontdoor",
        argv=(*module, "serve", "--config", str(at.settings(suite.FRONTDOOR))),
        ready=Greets(service.port, "SSH-2.0-"),
        user=suite.FRONTDOOR if at.separate else "",
        after=("tokens",),
    )


def _components(at: suite.Suite) -> tuple[Component, ...]:
    def user(service: str) -> str:
        return service if at.separate else ""

    def step(name: str, argv: Sequence[str], service: str, after: Sequence[str] = ()) -> Component:
        return Component(
            name=name, argv=tuple(argv), ready=Ends(), user=user(service), after=tuple(after)
        )

    def port(url: str) -> int:
        return int(url.rstrip("/").rsplit(":", 1)[1])

    python = (str(at.python), "-P", "-m")
    addresses = at.addresses
    config = ("--config", str(at.settings(suite.SIGNER)))
    tokens_config = ("--config", str(at.settings(suite.TOKENS)))
    return (
        Component(
            name="issuer",
            argv=(*python, "testbed.issuer", "serve", "--config", str(at.settings(suite.ISSUER))),
            ready=Answers(port(addresses.issuer), "/.well-known/openid-configuration"),
            user=user(suite.ISSUER),
        ),
        step("signer-init", (*python, "token_translator.signer", "init", *config), suite.SIGNER),
        Component(
            name="signer",
            argv=(*python, "token_translator.signer", "serve", *config),
            ready=Accepts(str(at.files.path("var/signer/socket"))),
            user=user(suite.SIGNER),
            after=("signer-init",),
        ),
        step(
            "tokens-migrate", (*python, "token_translator", "migrate", *tokens_config), suite.TOKENS
        ),
        Component(
            name="tokens",
            argv=(*python, "token_translator", "serve", *tokens_config),
            ready=Answers(port(addresses.tokens), "/livez"),
            user=user(suite.TOKENS),
            after=("signer", "tokens-migrate"),
        ),
        step(
            "accounts-migrate",
            at.command("account_importer", suite.ACCOUNTS, "migrate"),
            suite.ACCOUNTS,
        ),
        Component(
            name="accounts",
            argv=at.command("account_importer", suite.ACCOUNTS, "serve"),
            ready=Answers(port(addresses.accounts), "/livez"),
            user=user(suite.ACCOUNTS),
            after=("accounts-migrate", "issuer"),
        ),
        step("gateway-migrate", at.command("gateway", suite.GATEWAY, "migrate"), suite.GATEWAY),
        Component(
            name="gateway",
            argv=at.command("gateway", suite.GATEWAY, "serve"),
            ready=Answers(port(addresses.gateway), "/livez"),
            user=user(suite.GATEWAY),
            after=("gateway-migrate",),
        ),
    )
