"""A broker that asks who is there: SCRAM over TLS, client certificates, and no right that was not granted."""

from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.certificates import Authority
from tests.support.kafka_broker import BrokerProcess

ADMIN_PASSWORD = "admin-of-one-test"
SCRAM = "SCRAM-SHA-512"


class SecuredBroker(BrokerProcess):
    """One listener for SCRAM over TLS (`address`), one for client certificates (`certified`).

    Controller and broker are one process, which talks to itself without a password; everybody else needs one.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder, "authority")
        key, certificate = self.authority.signed("broker")
        both = folder / "broker.both.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        listen = f"SASL_SSL://{self.address},SSL://{self.certified}"
        self.more = [
            f"listeners={listen},CONTROLLER://127.0.0.1:{self.controller}",
            f"advertised.listeners={listen},CONTROLLER://127.0.0.1:{self.controller}",
            "listener.security.protocol.map=SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=SASL_SSL",
            f"sasl.enabled.mechanisms={SCRAM}",
            f"sasl.mechanism.inter.broker.protocol={SCRAM}",
            f'listener.name.sasl_ssl.{SCRAM.lower()}.sasl.jaas.config={login} username="admin" '
            f'password="{ADMIN_PASSWORD}";',
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={both}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority.path}",
            "listener.name.ssl.ssl.client.auth=required",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found=false",
            "super.users=User:admin;User:ANONYMOUS",
        ]
        self.format_options = ["--add-scram", f"{SCRAM}=[name=admin,password={ADMIN_PASSWORD}]"]
        self.client = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": SCRAM,
            "sasl.username": "admin",
            "sasl.password": ADMIN_PASSWORD,
            "ssl.ca.location": str(self.authority.path),
        }

    @property
    def certified(self) -> str:
        """The bootstrap address for those with a client certificate."""
        return f"127.0.0.1:{self.second}"

    def admit(self, user: str, password: str) -> None:
        """Makes a user who may log in and do nothing."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(user, how, password.encode())
        admin = AdminClient({"bootstrap.servers": self.address, **self.client})  # held: its futures die with it
        admin.alter_user_scram_credentials([wanted])[user].result(30)

    def allow_reading(self, principal: str, topic: str) -> None:
        """Grants the one right that docs/how-to/connect-to-kafka.md names for sources: READ on the topic."""
        right = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{principal}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        admin = AdminClient({"bootstrap.servers": self.address, **self.client})
        admin.create_acls([right])[right].result(30)
