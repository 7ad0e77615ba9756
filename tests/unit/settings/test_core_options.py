from consumer.settings.core_options import pipeline_options
from consumer.settings.settings import Settings


def test_messages_to_skip_are_named_by_topic_partition_and_offset() -> None:
    settings = Settings(skip=("serving-responses:0:17", "a.b_c:12:9999999999"))
    assert pipeline_options(settings, "fleet").skip == {
        ("serving-responses", 0, 17),
        ("a.b_c", 12, 9_999_999_999),
    }
