"""A heartbeat's answer that was lost with the partitions that it assigned or took away (consumer protocol).

The client (librdkafka 2.16.0) then asks again, but not for the assignment, and the broker does not repeat it.
"""

from __future__ import annotations

import pytest

from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.kafka import KafkaCluster
from tests.cable import CONSUMER_GROUP_HEARTBEAT, Cable
from tests.integration.test_cut_off_member import consuming
from tests.waiting import eventually

_WITHOUT_ASSIGNMENT = 56  # bytes of an answer; each topic in an assignment has 16 for its id


@pytest.fixture
def topic(kafka_cluster: KafkaCluster, topic_name: str) -> str:
    kafka_cluster.topics.create(topic_name, partitions=4, config={"cleanup.policy": "compact"})
    declare_group(kafka_cluster, f"lvq.{topic_name}", topic_name)
    return topic_name


@pytest.mark.timeout(300)
def test_g10_partitions_that_a_member_was_assigned_and_did_not_hear_of_are_consumed(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    servers = kafka_cluster.config.bootstrap_servers
    with Cable(servers) as cable, consuming(cable.bootstrap_servers, "consumer", topic) as stays:
        with consuming(servers, "consumer", topic) as leaves:
            eventually(lambda: (len(stays.stats.partitions), len(leaves.stats.partitions)) == (2, 2), 60)
            trap = cable.cut_at(CONSUMER_GROUP_HEARTBEAT, answer=True, longer_than=_WITHOUT_ASSIGNMENT)
        assert trap.sprung.wait(60)
        cable.mend()
        eventually(lambda: len(stays.stats.partitions) == 4, 60)


@pytest.mark.timeout(300)
def test_g10_partitions_that_a_member_was_to_give_up_and_did_not_hear_of_are_consumed_by_the_other(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    servers = kafka_cluster.config.bootstrap_servers
    with Cable(servers) as cable, consuming(cable.bootstrap_servers, "consumer", topic) as first:
        eventually(lambda: len(first.stats.partitions) == 4, 60)
        trap = cable.cut_at(CONSUMER_GROUP_HEARTBEAT, answer=True, longer_than=_WITHOUT_ASSIGNMENT)
        with consuming(servers, "consumer", topic) as second:
            assert trap.sprung.wait(60)
            cable.mend()
            eventually(lambda: (len(first.stats.partitions), len(second.stats.partitions)) == (2, 2), 60)
