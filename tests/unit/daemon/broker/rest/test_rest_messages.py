"""Single messages over REST: what their metadata say is in headers, named to the letter as Java names them."""

from __future__ import annotations

from bkctl.codec.compression import LZ4
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from tests.broker.admin import Admin, administering
from tests.unit.log.logs import until

TOPIC = "persistent://t1/m/a"
PATH = "/admin/v2/persistent/t1/m/a"


def test_all_that_a_producer_has_set_is_told() -> None:
    """Java's client compares names of headers letter by letter: in small ones no message had properties."""
    metadata = api.MessageMetadata(
        producer_name="a\r\nX-Evil: 1", sequence_id=3, publish_time=1_700_000_000_001, partition_key="a2V5",
        partition_key_b64_encoded=True, ordering_key=b"order", deliver_at_time=1_700_000_005_000, null_value=True,
        uuid="u-3", num_chunks_from_msg=2, total_chunk_msg_size=9, chunk_id=1, schema_version=b"\0\1",
        encryption_algo="RSA", encryption_param=b"iv", compression=LZ4, uncompressed_size=1,
    )  # fmt: skip
    metadata.properties.add(key="a", value="b")
    for name in ("k1", "k2"):
        metadata.encryption_keys.add(key=name, value=b"secret")

    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/tenants/t1", {"allowedClusters": ["lab"]})
        await admin.ok("PUT", "/admin/v2/namespaces/t1/m")
        topic = await admin.topic(TOPIC)
        topic.ledger.add_many([encode_entry(metadata, b"hidden")])
        await until(lambda: topic.ledger.added == 1)
        answer = await admin.ask("GET", f"{PATH}/examinemessage?initialPosition=earliest&messagePosition=1")
        assert (answer.status, answer.data) == (200, b"hidden"), answer  # encrypted: as it is
        told = {
            "X-Pulsar-PROPERTY": '{"a":"b"}', "X-Pulsar-deliver-at-time": "2023-11-14T22:13:25Z",
            "X-Pulsar-null-value": "true", "X-Pulsar-PROPERTY-TOTAL-CHUNKS": "2", "X-Pulsar-PROPERTY-CHUNK-ID": "1",
            "X-Pulsar-Is-Encrypted": "true", "X-Pulsar-producer-name": "a??X-Evil: 1", "X-Pulsar-partition-key": "a2V5",
            "X-Pulsar-uncompressed-size": "1", "X-Pulsar-compression": "LZ4", "X-Pulsar-encryption-algo": "RSA",
            "X-Pulsar-Base64-encryption-param": "aXY=", "X-Pulsar-Base64-schema-version": "AAE=",
            "X-Pulsar-partition-key-b64-encoded": "true", "X-Pulsar-Base64-ordering-key": "b3JkZXI=",
            "X-Pulsar-uuid": "u-3", "X-Pulsar-num-chunks-from-msg": "2", "X-Pulsar-total-chunk-msg-size": "9",
            "X-Pulsar-chunk-id": "1",
        }  # fmt: skip
        assert {name: answer.headers.get(name.lower()) for name in told} == told
        assert set(told) <= set(answer.names)
        assert answer.names.count("X-Pulsar-Base64-encryption-keys") == 2

    administering(scenario)
