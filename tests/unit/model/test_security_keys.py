"""Keys that protect a cluster: which values refuse the start, and that the files which Java ships do not."""

from __future__ import annotations

import pytest

from bkctl.errors import UsageError
from bkctl.model.security_keys import BOOKIE, BOOKKEEPER_CLIENT, BROKER, OVERRIDE, Table, check_security, unsupported

TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"

STOCK_BOOKIE = f"""
    httpServerTlsEnable= httpServerTlsEnable=false httpServerKeyStorePath= httpServerKeyStorePassword=
    httpServerTrustStorePath= httpServerTrustStorePassword= zkEnableSecurity=false bookieAuthProviderFactoryClass=null
    permittedStartupUsers= authorizedRoles= tlsProvider=OpenSSL tlsKeyStoreType=JKS tlsKeyStore=null
    tlsKeyStorePasswordPath=null tlsTrustStoreType=null tlsTrustStore=null tlsTrustStorePasswordPath=null
    tlsCertificatePath=null tlsCertFilesRefreshDurationSeconds=0 tlsCertFilesRefreshDurationSeconds=300
    disableServerSocketBind=false enableLocalTransport=false httpServerEnabled=true httpServerPort=8000
    httpServerHost=0.0.0.0 passwd=secret journalSyncData=true {OVERRIDE}=
"""
"""Values of bk_server.conf of BookKeeper and bookkeeper.conf of Pulsar, commented-out ones too."""

STOCK_BROKER = f"""
    brokerServicePortTls= webServicePortTls= proxyRoles= authenticateOriginalAuthData=false tlsEnabled=false
    tlsCertRefreshCheckDurationSec=300 tlsCertificateFilePath= tlsKeyFilePath= tlsTrustCertsFilePath=
    tlsAllowInsecureConnection=false tlsHostnameVerificationEnabled=false tlsProtocols= tlsCiphers=
    tlsRequireTrustedClientCertOnConnect=false tlsProvider= webServiceTlsProvider=Conscrypt webServiceTlsProtocols=
    webServiceTlsCiphers= tlsEnabledWithKeyStore=false tlsKeyStoreType=JKS tlsKeyStore= tlsKeyStorePassword=
    tlsTrustStoreType=JKS tlsTrustStore= tlsTrustStorePassword= brokerClientTlsEnabled=false
    brokerClientTlsEnabledWithKeyStore=false brokerClientSslProvider= brokerClientTrustCertsFilePath=
    brokerClientKeyFilePath= brokerClientCertificateFilePath= brokerClientTlsKeyStoreType=JKS brokerClientTlsKeyStore=
    brokerClientTlsKeyStorePassword= brokerClientTlsTrustStoreType=JKS brokerClientTlsTrustStore=
    brokerClientTlsTrustStorePassword= brokerClientTlsCiphers= brokerClientTlsProtocols= authenticationEnabled=false
    authenticationProviders= authenticationRefreshCheckSeconds=60 authorizationEnabled=false
    authorizationProvider=org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider
    authorizationAllowWildcardsMatching=false superUserRoles= brokerClientAuthenticationPlugin=
    brokerClientAuthenticationParameters= athenzDomainNames= anonymousUserRole= basicAuthConf= tokenSecretKey=
    tokenPublicKey= tokenAuthClaim= tokenAudienceClaim= tokenAudience= saslJaasClientAllowedIds=.*pulsar.*
    saslJaasClientAllowedIds= saslJaasServerSectionName=PulsarBroker saslJaasServerRoleTokenSignerSecretPath=
    saslJaasBrokerSectionName= httpMaxRequestSize=-1 disableHttpDebugMethods=false
    bookkeeperClientAuthenticationPlugin= bookkeeperClientAuthenticationParametersName=
    bookkeeperClientAuthenticationParameters= bookkeeperTLSProviderFactoryClass={TLS_FACTORY}
    bookkeeperTLSClientAuthentication=false bookkeeperTLSKeyFileType=PEM bookkeeperTLSTrustCertTypes=PEM
    bookkeeperTLSKeyStorePasswordPath= bookkeeperTLSTrustStorePasswordPath= bookkeeperTLSKeyFilePath=
    bookkeeperTLSCertificateFilePath= bookkeeperTLSTrustCertsFilePath= bookkeeperTlsCertFilesRefreshDurationSeconds=300
    bookkeeper_tlsHostnameVerificationEnabled=false replicationTlsEnabled=false metadataStoreConfigPath=
    authenticateMetricsEndpoint=false brokerInterceptors= entryFilterNames= advertisedListeners= bindAddresses=
    sslFactoryPlugin=org.apache.pulsar.common.util.DefaultPulsarSslFactory sslFactoryPluginParams=
    advertisedListeners=internal:pulsar://broker:6650 encryptionRequireOnProducer=false
"""
"""Values of broker.conf of Pulsar 2.5 to 4.0, and defaults of ServiceConfiguration."""


def pairs(text: str) -> list[dict[str, str]]:
    return [dict([word.split("=", 1)]) for word in text.split()]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (BOOKIE, STOCK_BOOKIE),
        (BOOKKEEPER_CLIENT, STOCK_BOOKIE),
        (BROKER, STOCK_BROKER),
        (BOOKKEEPER_CLIENT, STOCK_BROKER),
    ],
)
def test_values_of_the_files_that_java_ships_are_harmless(table: Table, text: str) -> None:
    assert [conf for conf in pairs(text) if unsupported(conf, table)] == []


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            BOOKIE,
            f"""tlsProviderFactoryClass={TLS_FACTORY} tlsProvider=JDK tlsKeyStore=/k tlsClientAuthentication=true
            tlsKeyStoreType=PEM tlsTrustStore=/t tlsCertificatePath=/c tlsEnabledProtocols=TLSv1.3
            tlsEnabledCipherSuites=A tlsHostnameVerificationEnabled=true tlsOfALaterVersion=x tlsKeyStorePasswordPath=/p
            bookieAuthProviderFactoryClass=org.example.X clientAuthProviderFactoryClass=org.example.X authorizedRoles=a
            permittedStartupUsers=bk zkEnableSecurity=true zkEnableSecurity=TRUE zkEnableSecurity=yes
            httpServerTlsEnable=true httpServerKeyStorePath=/k httpServerKeyStorePassword=p httpServerTrustStorePath=/t
            httpServerTrustStorePassword=p clientKeyStore=/k clientKeyStorePasswordPath=/p clientKeyStoreType=PEM
            clientTrustStore=/t disableServerSocketBind=true saslJaasClientAllowedIds=alice""",
        ),
        (
            BROKER,
            """authenticationEnabled=true authenticationEnabled=True authenticationEnabled=1 authorizationEnabled=true
            authenticationProviders=org.example.X authorizationProvider=org.example.X superUserRoles=admin
            proxyRoles=proxy anonymousUserRole=anonymous authenticateOriginalAuthData=true
            authenticateMetricsEndpoint=true brokerServicePortTls=6651 webServicePortTls=0 tlsEnabled=true
            tlsCertificateFilePath=/c tlsKeyFilePath=/k tlsTrustCertsFilePath=/t tlsEnabledWithKeyStore=true
            tlsRequireTrustedClientCertOnConnect=true tlsProtocols=TLSv1.3 webServiceTlsProtocols=TLSv1.3
            webServiceTlsProvider=SunJSSE bookkeeperTLSProviderFactoryClass=org.example.X
            bookkeeperTLSClientAuthentication=true bookkeeperTLSKeyFilePath=/k bookkeeperTLSTrustCertsFilePath=/t
            bookkeeperClientAuthenticationPlugin=org.example.X bookkeeperClientAuthenticationParameters=p
            brokerClientTlsEnabled=true brokerClientTlsTrustStore=/t brokerClientTrustCertsFilePath=/t
            brokerClientAuthenticationPlugin=org.example.X brokerClientAuthenticationParameters=token:x
            brokerClient_tlsTrustCertsFilePath=/t brokerClient_authPluginClassName=org.example.X
            tokenSecretKey=data:,x tokenPublicKey=/p basicAuthConf=/b athenzDomainNames=d openIDAllowedTokenIssuers=i
            saslJaasClientAllowedIds=.* saslJaasServerRoleTokenSignerSecretPath=/s sslFactoryPlugin=org.example.X
            replicationTlsEnabled=true metadataStoreConfigPath=/m configurationStoreConfigPath=/m zkEnableSecurity=true
            advertisedListeners=internal:pulsar://b:6650,out:pulsar+ssl://b:6651 bindAddresses=a:https://0.0.0.0:8443
            bookkeeper_tlsProviderFactoryClass=x bookkeeper_tlsHostnameVerificationEnabled=true
            bookkeeper_clientAuthProviderFactoryClass=org.example.X bookkeeper_zkEnableSecurity=true
            entryFilterNames=f brokerInterceptors=i""",
        ),
    ],
)
def test_a_key_that_asks_for_protection_is_refused_by_name(table: Table, text: str) -> None:
    for conf in pairs(text):
        (key,) = conf
        assert list(unsupported(conf, table)) == [key], conf
        with pytest.raises(UsageError, match=key):
            check_security(conf, table, warn=lambda line: None)


def test_the_refusal_names_every_key_with_its_place_and_masks_secrets() -> None:
    conf = {"tlsKeyStore": "/etc/key.jks", "authorizedRoles": "a", "httpServerKeyStorePassword": "hunter2"}
    places = {key: f"bk.conf:{line}: " for line, key in enumerate(conf, 1)}
    with pytest.raises(UsageError) as error:
        check_security(conf, BOOKIE, warn=lambda line: None, where=places.__getitem__)
    for part in ("bk.conf:1: tlsKeyStore=", "bk.conf:2: authorizedRoles=a ", "bk.conf:3: httpServerKeyStorePassword="):
        assert part in error.value.message
    assert "hunter2" not in error.value.message
    assert error.value.hint is not None
    assert f"{OVERRIDE}=true" in error.value.hint


def test_the_override_makes_each_key_a_warning_and_gives_the_keys_to_ignore() -> None:
    conf = {"zkEnableSecurity": "true", "authorizedRoles": "a", "bookiePort": "3181", OVERRIDE: "true"}
    told: list[str] = []
    assert check_security(conf, BOOKIE, warn=told.append) == {"zkEnableSecurity", "authorizedRoles", OVERRIDE}
    assert [line.partition("=")[0] for line in told] == ["zkEnableSecurity", "authorizedRoles"]
    with pytest.raises(UsageError, match="zkEnableSecurity"):
        check_security(conf | {OVERRIDE: "false"}, BOOKIE, warn=told.append)
    with pytest.raises(UsageError, match=f"{OVERRIDE}=ture: not true or false"):
        check_security(conf | {OVERRIDE: "ture"}, BOOKIE, warn=told.append)
