"""What is taken for a credential, by its name and by its form."""

import pytest

from consumer.core.redaction import holds_credentials, is_secret, mask_user_info, preview


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "PASSWORD",
        "ssl_key_password",
        "client.secret",
        "sasl.jaas.config",
        "token",
        "access_token",
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "x-api-key",
        "apikey",
        "ssl.key.pem",
        "ssl.ca.pem",
        "private_key",
        "credentials",
        "passphrase",
        "x-signature",
        "accesskey",
        "x-goog-api-key",
    ],
)
def test_names_of_credentials(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "key_base64",
        "key.deserializer",
        "ssl.key.location",
        "completion_tokens",
        "num_draft_tokens",
        "num_spec_tokens",
        "sasl.username",
        "partition",
        "keystore",
        "partition-key",
        "ce_partitionkey",
        "kafka_messageKey",
        "routing_key",
        "sasl.oauthbearer.client.credentials.client.id",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


def test_only_the_user_of_a_url_is_masked() -> None:
    assert mask_user_info("a@b http://u:p@h/p, //t@h/p@q http://h:1/p") == (
        "a@b http://[masked]@h/p, //[masked]@h/p@q http://h:1/p"
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://u:pa/ss@h", "https://[masked]@h"),
        ("https://u:p@ss@h", "https://[masked]@h"),
        ("https://u:p@s/s@h/x", "https://[masked]@h/x"),
        ("https://:pass@h", "https://[masked]@h"),
        ("https://t@ken@h", "https://[masked]@h"),
        ("user:secret@host:9092", "[masked]@host:9092"),
        (":secret@host:9092", "[masked]@host:9092"),
        ("a:1,u:s@b:2, v:p@/s@c:3", "a:1,[masked]@b:2, [masked]@c:3"),
        ("to resolve 'u:s@b:2'", "to resolve '[masked]@b:2'"),
    ],
)
def test_a_password_is_masked_whatever_it_is_made_of(text: str, masked: str) -> None:
    assert mask_user_info(text) == masked


# Previews


@pytest.mark.parametrize(
    "payload",
    [
        '{"authorization": "Bearer hunter2hunter2", "x": 1}',
        '{"x-api-key":"hunter2","x":1}',
        '{"a":"{\\"cookie\\":\\"hunter2\\",\\"x\\":1}"}',
        '{"password": "a\\"hunter2", "x": 1}',
        '{"password": 1hunter2, "x": 1}',
        '{"access_token": "hunter2',
        "GET / HTTP/1.1\r\nAuthorization: Basic hunter2==\r\nX-Api-Key: hunter2\r\nHost: x",
        "Cookie: a=1; session=hunter2\n",
        "https://user:hunter2@example.org/?api_key=hunter2",
        "use Bearer hunter2.hunter2 for it",
        "use sk-proj-hunter2hunter2hunter2",
        "ghp_hunter2hunter2hunter2hunter2",
        "token eyJhunter2hunter2.hunter2.hunter2",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n",
    ],
)
def test_a_preview_masks_what_looks_like_a_credential(payload: str) -> None:
    for most in (len(payload), 4096, 40):
        shown = preview(payload.encode(), most)
        assert "hunter2" not in shown
        assert len(shown.encode()) <= max(most, 3)
    assert "[masked]" in preview(payload.encode(), 4096)


@pytest.mark.parametrize(
    "payload",
    ['{"request_id": "r", "body": {"usage": {"total_tokens": 7}}}', "plain text: with a colon", ""],
)
def test_a_preview_shows_the_rest_as_it_is(payload: str) -> None:
    assert preview(payload.encode(), 4096) == payload


def test_a_preview_has_no_more_bytes_than_it_may_and_hides_a_credential_that_is_cut() -> None:
    assert preview(b"x" * 100, 10) == "x" * 10
    assert preview("é".encode() * 10, 5) == "éé\ufffd"
    payload = b"x" * 90 + b'{"password": "' + b"hunter2" * 1_000
    for most in range(80, 300):
        assert "hunter" not in preview(payload, most)


def test_the_names_of_members_tell_a_payload_that_holds_credentials() -> None:
    assert holds_credentials(b'{"headers": {"Authorization" : "x"}}')
    assert holds_credentials(b'{"a": "{\\"x-api-key\\": 1}"}')
    assert not holds_credentials(b'{"usage": {"completion_tokens": 7}, "key": "x"}')
