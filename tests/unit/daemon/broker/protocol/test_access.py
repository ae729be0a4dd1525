"""The identity of clients and their rights, without authentication and authorization."""

from __future__ import annotations

import pytest
from bkdaemon.broker.protocol.access import ANONYMOUS, Action, Principal, allowed, authenticate

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.model.topic import TopicName
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import TOPIC


@pytest.mark.parametrize(
    "credentials", [{}, {"auth_method_name": "token", "auth_data": b"secret"}, {"auth_method_name": "unknown"}]
)
def test_every_client_is_anonymous_whatever_its_credentials(credentials: dict[str, object]) -> None:
    assert authenticate(api.CommandConnect(client_version="c", **credentials)) is ANONYMOUS  # type: ignore[arg-type]
    assert ANONYMOUS.role == "anonymous"


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("principal", [ANONYMOUS, Principal("another")])
def test_every_principal_may_do_everything(principal: Principal, action: Action) -> None:
    for name in (TOPIC, "non-persistent://tenant/namespace/topic-partition-3"):
        assert allowed(principal, action, TopicName.parse(name)) is True


def test_a_client_with_a_token_is_connected_as_anonymous_and_may_produce() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(auth_method_name="token", auth_data=b"secret")
        (connection,) = stage.server.connections
        assert connection.principal is ANONYMOUS
        assert (await client.produce(TOPIC)).producer_ready
        assert not [said for said in client.said if said.kind == Command.AUTH_CHALLENGE]

    on_stage(scenario)
