"""`ClientConfig`: accepted and refused properties, and the secrecy of secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.properties import COMMON, CONSUMER_ONLY, JAVA_NAMES, OWNED, PRODUCER_ONLY

SECRETS = {
    "sasl.password": "tiger-1",
    "ssl.key.password": "tiger-2",
    "ssl.keystore.password": "tiger-3",
    "ssl.key.pem": "tiger-4",
    "sasl.oauthbearer.client.secret": "tiger-5",
    "sasl.oauthbearer.client.credentials.client.secret": "tiger-6",
    "sasl.oauthbearer.config": "principal=tiger-7",
    "sasl.oauthbearer.assertion.private.key.pem": "tiger-8",
    "sasl.oauthbearer.assertion.private.key.passphrase": "tiger-9",
}


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_the_repr_shows_properties_and_hides_every_secret() -> None:
    shown = repr(ClientConfig("broker:9092", {**SECRETS, "sasl.username": "alice", "ssl.key.location": "/etc/key"}))
    assert "tiger" not in shown
    assert "broker:9092" in shown
    assert "alice" in shown
    assert "/etc/key" in shown
    assert all(name in shown for name in SECRETS)


def test_white_space_and_empty_parts_in_the_server_list_do_not_matter() -> None:
    assert ClientConfig(" a:1 , b:2,, ").bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize("servers", ["", "  ", ","])
def test_an_empty_server_list_is_refused(servers: str) -> None:
    with pytest.raises(ConfigError, match="localhost:9092") as caught:
        ClientConfig(servers)
    assert caught.value.options == ("bootstrap.servers",)


@pytest.mark.parametrize("server", ["localhost:abc", "localhost:", "a:0", "a:65536", "SSL://a:9o92", "[::1]:x", "a:-1"])
def test_a_port_that_is_none_is_refused(server: str) -> None:
    """The client would read it as port 0, and keep trying."""
    with pytest.raises(ConfigError, match="port") as caught:
        ClientConfig(f"good:9092,{server}")
    assert server in str(caught.value)
    assert "good" not in str(caught.value)
    assert caught.value.options == ("bootstrap.servers",)


@pytest.mark.parametrize("server", ["localhost", "a:1", "SSL://a:65535", "PLAINTEXT://a", "[::1]", "[::1]:9092", "::1"])
def test_a_server_may_do_without_a_port_and_name_a_protocol_or_an_address_of_ipv6(server: str) -> None:
    assert ClientConfig(server).bootstrap_servers == server


@pytest.mark.parametrize("server", ["http://a:9092", "kafka://a:9092/", "https://user:hush@a:9092/topic?x=1"])
def test_a_server_that_is_written_as_a_url_is_refused(server: str) -> None:
    """The client would connect to something, or to nothing, and say that nobody answers."""
    with pytest.raises(ConfigError, match="host and port alone") as caught:
        ClientConfig(f"good:9092,{server}")
    assert "'a:9092'" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.options == ("bootstrap.servers",)


@pytest.mark.parametrize("servers", ["a:1;b:2", "a:1 b:2", "a 9092", "a:1|b:2", "a:1\nb:2"])
def test_servers_that_are_not_separated_by_commas_are_refused(servers: str) -> None:
    with pytest.raises(ConfigError, match="Separate several by commas") as caught:
        ClientConfig(servers)
    assert caught.value.options == ("bootstrap.servers",)


def test_two_different_server_lists_are_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        ClientConfig("a:1", {"bootstrap.servers": "b:2"})
    assert ClientConfig("a:1", {"bootstrap.servers": "a:1"}).properties == {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize("name", sorted(OWNED))
def test_a_property_that_a_guarantee_rests_on_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} cannot be set: ") as caught:
        ClientConfig("a:1", {name: "x"})
    assert caught.value.options == (name,)
    assert OWNED[name] in str(caught.value)


@pytest.mark.parametrize("name", sorted(JAVA_NAMES))
def test_a_name_that_only_java_knows_is_refused_and_the_way_out_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="Java client") as caught:
        ClientConfig("a:1", {name: "tiger"})
    assert caught.value.options == (name,)
    assert caught.value.hint == JAVA_NAMES[name]
    assert "tiger" not in str(caught.value)


def test_hints_for_java_names_point_to_properties_that_exist() -> None:
    known = COMMON | CONSUMER_ONLY | PRODUCER_ONLY
    for name, hint in JAVA_NAMES.items():
        assert name not in known
        for word in hint.replace(",", " ").split():
            word = word.rstrip(".").split("=")[0]
            if "." in word:
                assert word in known, hint


def test_each_kind_of_client_gets_the_properties_that_concern_it() -> None:
    config = ClientConfig("a:1", {"fetch.min.bytes": 10, "linger.ms": 5, "client.id": "me"})
    assert config.for_consumer() == {"bootstrap.servers": "a:1", "fetch.min.bytes": 10, "client.id": "me"}
    assert config.for_producer() == {"bootstrap.servers": "a:1", "linger.ms": 5, "client.id": "me"}
    assert config.for_admin() == {"bootstrap.servers": "a:1", "client.id": "me"}


def test_a_configuration_cannot_be_changed_through_what_it_hands_out() -> None:
    config = ClientConfig("a:1", {"client.id": "me"})
    config.properties["client.id"] = "you"
    config.for_consumer()["client.id"] = "you"
    assert config.properties["client.id"] == "me"


def test_equal_configurations_are_equal() -> None:
    assert ClientConfig("a:1", {"client.id": "me"}) == ClientConfig("a:1", {"client.id": "me"})
    assert hash(ClientConfig("a:1")) == hash(ClientConfig("a:1"))
    assert ClientConfig("a:1") != ClientConfig("b:1")


def test_a_properties_file_is_read_as_kafkas_tools_read_it(tmp_path: Path) -> None:
    path = write(
        tmp_path / "client.properties",
        """\
# a comment
! another

bootstrap.servers = a:1,\\
    b:2
security.protocol=SASL_SSL
  sasl.username=alice
sasl.password= pass=word#1\\\\2\\=\\u0041
""",
    )
    assert ClientConfig.from_file(path).properties == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.username": "alice",
        "sasl.password": "pass=word#1\\2=A",
    }


@pytest.mark.parametrize("line", ["no separator", "=tiger", "a b=c", "a:1=b", "a: b", "client.id=tiger\\q"])
def test_a_line_that_is_no_property_is_refused_with_its_number_and_without_its_text(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "client.properties", f"# first\nclient.id=x\n{line}\n")
    with pytest.raises(ConfigError, match=r"client\.properties, line 3 ") as caught:
        ClientConfig.from_file(path)
    assert line not in str(caught.value)


def test_a_property_that_is_set_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "client.properties", "bootstrap.servers=a:1\nclient.id=x\nclient.id=y\n")
    with pytest.raises(ConfigError, match=r"line 3 sets client\.id twice"):
        ClientConfig.from_file(path)


def test_a_file_without_servers_or_no_file_at_all_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "client.properties", "client.id=x\n")
    with pytest.raises(ConfigError, match=r"client\.properties does not set bootstrap\.servers"):
        ClientConfig.from_file(path)
    with pytest.raises(ConfigError, match=r"Cannot read .*missing\.properties: No such file"):
        ClientConfig.from_file(tmp_path / "missing.properties")


def test_the_environment_overrides_the_file_that_it_names(tmp_path: Path) -> None:
    path = write(tmp_path / "client.properties", "bootstrap.servers=a:1\nsasl.username=alice\nclient.id=x\n")
    config = ClientConfig.from_env(
        {"LVQ_CONFIG": str(path), "LVQ_BOOTSTRAP_SERVERS": "b:2", "LVQ_SASL_USERNAME": "bob", "OTHER": "y"}
    )
    assert config.properties == {"bootstrap.servers": "b:2", "sasl.username": "bob", "client.id": "x"}


def test_a_secret_can_come_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    secret = write(tmp_path / "password", " tiger \n")
    config = ClientConfig.from_env({"LVQ_BOOTSTRAP_SERVERS": "a:1", "LVQ_SASL_PASSWORD_FILE": str(secret)})
    assert config.properties["sasl.password"] == " tiger "


def test_a_secret_given_in_both_ways_is_refused(tmp_path: Path) -> None:
    secret = write(tmp_path / "password", "tiger")
    environ = {
        "LVQ_BOOTSTRAP_SERVERS": "a:1",
        "LVQ_SASL_PASSWORD": "tiger",
        "LVQ_SASL_PASSWORD_FILE": str(secret),
    }
    with pytest.raises(ConfigError, match="LVQ_SASL_PASSWORD and LVQ_SASL_PASSWORD_FILE") as caught:
        ClientConfig.from_env(environ)
    assert "tiger" not in str(caught.value)


def test_an_environment_that_names_no_servers_is_refused_with_the_variable() -> None:
    with pytest.raises(ConfigError, match="Neither LVQ_BOOTSTRAP_SERVERS nor") as caught:
        ClientConfig.from_env({})
    assert caught.value.hint == 'Pass bootstrap_servers="localhost:9092", or set LVQ_BOOTSTRAP_SERVERS.'


def test_a_secret_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    environ = {"LVQ_BOOTSTRAP_SERVERS": "a:1", "LVQ_SASL_PASSWORD_FILE": str(tmp_path / "nothing")}
    with pytest.raises(ConfigError, match="nothing") as caught:
        ClientConfig.from_env(environ)
    assert caught.value.options == ("LVQ_SASL_PASSWORD_FILE",)


def test_r50_a_classic_member_has_none_of_the_options_of_other_members() -> None:
    properties = {"group.protocol": "consumer", "group.remote.assignor": "uniform", "group.instance.id": "one"}
    config = ClientConfig("broker:9092", {**properties, "client.id": "me", "sasl.password": "tiger"})
    assert config.of_classic_member() == ClientConfig("broker:9092", {"client.id": "me", "sasl.password": "tiger"})
    assert config.properties.items() >= properties.items(), "it stays as it was"
