"""Configuration keys of Java's servers and clients that protect a cluster and that bkctl does not support.

A key that is set to anything but a harmless value refuses the start: `check_security` names each of them. With
`bkctlAllowInsecure=true` each is a warning and is ignored. A row leaves these tables when bkctl supports its keys.

    BOOKKEEPER_CLIENT   what connects to bookies and to the metadata store: the command line, auto recovery, the broker
    BOOKIE              bk_server.conf, of a bookie or of auto recovery
    BROKER              broker.conf; the client's keys have the prefix `bookkeeper_` there

A value is harmless if it is empty, the word null, or what Java takes where the key is missing and its own files ship.
Source: AbstractConfiguration, ServerConfiguration, ClientConfiguration and bk_server.conf of BookKeeper 4.17;
ServiceConfiguration, broker.conf and bookkeeper.conf of Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from bkctl.errors import UsageError
from bkctl.model.secret_keys import masked

OVERRIDE: Final = "bkctlAllowInsecure"
"""The key that permits a start without the requested protection."""
UNSET: Final = ("", "null")

Check: TypeAlias = Callable[[str], bool]


def _only(*values: str) -> Check:
    """Harmless: unset, or one of some values in any case."""
    allowed = frozenset(value.lower() for value in (*UNSET, *values))
    return lambda text: text.lower() in allowed


def _any(_text: str) -> bool:
    return True


def _without_tls(text: str) -> bool:
    """Harmless: a list of listeners without TLS."""
    return not any(scheme in text.lower() for scheme in ("pulsar+ssl:", "https:"))


@dataclass(frozen=True, slots=True)
class SecurityKeys:
    """Keys with the same harmless values and the same consequence.

    Attributes:
        names: the keys; one that ends with `*` matches all keys with this prefix that are in no earlier row.
        harmless: whether a value asks for no protection.
        consequence: the missing protection if the keys are ignored.
    """

    names: tuple[str, ...]
    harmless: Check
    consequence: str

    def has(self, key: str) -> bool:
        """Whether the key is in this row."""
        return any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in self.names)


Table: TypeAlias = "tuple[SecurityKeys, ...]"


def _row(names: str, harmless: Check, consequence: str) -> SecurityKeys:
    return SecurityKeys(tuple(names.split()), harmless, consequence)


_PLAIN: Final = "connections are not encrypted"
_ANYONE: Final = "every client that can connect has all permissions"
_FALSE: Final = _only("false")
_SSL_FACTORY: Final = "org.apache.pulsar.common.util.DefaultPulsarSslFactory"

_TLS: Final[Table] = (
    _row("tlsProvider", _only("OpenSSL"), _PLAIN),
    _row("tlsKeyStoreType tlsTrustStoreType", _only("JKS"), _PLAIN),
    _row("tlsCertFilesRefreshDurationSeconds tlsCertRefreshCheckDurationSec", _any, ""),
    _row("tlsClientAuthentication tlsRequireTrustedClientCertOnConnect", _FALSE, _ANYONE),
    _row("tlsHostnameVerificationEnabled", _FALSE, "the names in certificates are not verified"),
    _row("tlsEnabled tlsEnabledWithKeyStore tlsAllowInsecureConnection", _FALSE, _PLAIN),
    _row("tls*", _only(), _PLAIN),
)

BOOKKEEPER_CLIENT: Final[Table] = (
    *_TLS,
    _row("clientKeyStoreType clientTrustStoreType", _only("JKS"), _PLAIN),
    _row("clientKeyStore* clientTrustStore*", _only(), _PLAIN),
    _row("clientAuthProviderFactoryClass", _only(), "bkctl does not authenticate itself to bookies"),
    _row("zkEnableSecurity", _FALSE, "every client of the metadata store may change what bkctl creates there"),
)

BOOKIE: Final[Table] = (
    *BOOKKEEPER_CLIENT,
    _row("bookieAuthProviderFactoryClass authorizedRoles", _only(), _ANYONE),
    _row("saslJaasClientAllowedIds", _only(".*bookkeeper.*"), _ANYONE),
    _row("permittedStartupUsers", _only(), "every user may start the server"),
    _row("disableServerSocketBind", _FALSE, "the bookie listens on the network"),
    _row("httpServerTlsEnable", _FALSE, "the HTTP port is not encrypted"),
    _row("httpServerTls* httpServerKeyStore* httpServerTrustStore*", _only(), "the HTTP port is not encrypted"),
)

_CLIENT_IN_BROKER: Final = tuple(
    replace(row, names=tuple(f"bookkeeper_{name}" for name in row.names)) for row in BOOKKEEPER_CLIENT
)

BROKER: Final[Table] = (
    _row("authenticationEnabled authenticateMetricsEndpoint authenticateOriginalAuthData", _FALSE, _ANYONE),
    _row("authorizationEnabled authorizationAllowWildcardsMatching", _FALSE, _ANYONE),
    _row("authorizationProvider", _only("org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"), _ANYONE),
    _row("authenticationProviders superUserRoles proxyRoles anonymousUserRole", _only(), _ANYONE),
    _row("tokenSecretKey tokenPublicKey tokenAuthClaim tokenAudienceClaim tokenAudience", _only(), _ANYONE),
    _row("basicAuthConf athenzDomainNames openIDAllowedTokenIssuers openIDAllowedAudiences", _only(), _ANYONE),
    _row("saslJaasClientAllowedIds", _only(".*pulsar.*"), _ANYONE),
    _row("saslJaasServerRoleTokenSignerSecretPath", _only(), _ANYONE),
    _row("brokerServicePortTls webServicePortTls", _only(), "the broker listens without TLS only"),
    _row("advertisedListeners bindAddresses", _without_tls, "the broker listens without TLS only"),
    *_TLS,
    _row("webServiceTlsProvider", _only("Conscrypt"), _PLAIN),
    _row("webServiceTls*", _only(), _PLAIN),
    _row("sslFactoryPlugin brokerClientSslFactoryPlugin", _only(_SSL_FACTORY), _PLAIN),
    _row("sslFactoryPluginParams brokerClientSslFactoryPluginParams brokerClientSslProvider", _only(), _PLAIN),
    _row("replicationTlsEnabled", _FALSE, _PLAIN),
    _row("bookkeeperTLSProviderFactoryClass", _only("org.apache.bookkeeper.tls.TLSContextFactory"), _PLAIN),
    _row("bookkeeperTLSClientAuthentication", _FALSE, "connections to bookies are not encrypted"),
    _row("bookkeeperTLSKeyFileType bookkeeperTLSTrustCertTypes", _only("PEM"), _PLAIN),
    _row("bookkeeperTLS*", _only(), "connections to bookies are not encrypted"),
    _row("bookkeeperClientAuthentication*", _only(), "the broker does not authenticate itself to bookies"),
    _row("brokerClientTlsEnabled brokerClientTlsEnabledWithKeyStore", _FALSE, "brokers connect without TLS"),
    _row("brokerClientTlsKeyStoreType brokerClientTlsTrustStoreType", _only("JKS"), _PLAIN),
    _row(
        "brokerClientTls* brokerClient_tls* brokerClientTrustCertsFilePath brokerClientKeyFilePath "
        "brokerClientCertificateFilePath",
        _only(),
        "brokers connect without TLS",
    ),
    _row(
        "brokerClientAuthentication* brokerClient_auth*",
        _only(),
        "the broker does not authenticate itself to other brokers",
    ),
    _row("zkEnableSecurity", _FALSE, "every client of the metadata store may change what bkctl creates there"),
    _row(
        "metadataStoreConfigPath configurationStoreConfigPath",
        _only(),
        "TLS and authentication of the metadata store's client are not configured",
    ),
    _row("entryFilterNames", _only(), "consumers receive messages that the filters would reject"),
    _row("brokerInterceptors", _only(), "no interceptor checks requests"),
    *_CLIENT_IN_BROKER,
)


def unsupported(conf: Mapping[str, str], table: Table) -> dict[str, str]:
    """The keys of a configuration that request unsupported protection, each with the consequence."""
    found = {}
    for key, text in conf.items():
        row = next((row for row in table if row.has(key)), None)
        if row is not None and not row.harmless(text.strip()):
            found[key] = row.consequence
    return found


def check_security(
    conf: Mapping[str, str],
    table: Table,
    *,
    warn: Callable[[str], object],
    where: Callable[[str], str] = lambda key: "",
) -> frozenset[str]:
    """Refuses a configuration that requests unsupported protection.

    Args:
        conf: keys and values as a file has them.
        table: the keys that apply.
        warn: takes a line for each key where OVERRIDE allows them.
        where: the place of a key in its file, such as `bk_server.conf:12: `.

    Returns:
        The keys to ignore: OVERRIDE, and those that it allows.

    Raises:
        UsageError: such keys are set, and OVERRIDE is not true; or OVERRIDE is invalid. The message names each key.
    """
    override = conf.get(OVERRIDE, "").strip().lower()
    if override not in ("", "true", "false"):
        raise UsageError(f"{where(OVERRIDE)}{OVERRIDE}={conf[OVERRIDE]}: not true or false")
    found = unsupported(conf, table)
    lines = [f"{where(key)}{key}={masked(key, conf[key])} is not supported: {text}" for key, text in found.items()]
    if lines and override != "true":
        raise UsageError(
            "; ".join(lines), hint=f"remove the keys, or set {OVERRIDE}=true to run without this protection"
        )
    for line in lines:
        warn(f"{line}; running without it because {OVERRIDE}=true")
    return frozenset((*found, OVERRIDE))
