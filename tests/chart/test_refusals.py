"""A wrong value is refused before anything is installed, by a message that names it."""

from typing import Any

import pytest
import yaml

from tests.chart.chart import CASES, CHART, HelmError, every_helm, template

pytestmark = pytest.mark.chart

# What a person types wrongly, and the name that the message has to hold. JSON pointers name values.
WRONG = {
    "kafka.bootstrapServer=kafka:9092": "'bootstrapServer' not allowed",
    "kafka.bootstrapServers=kafka 9092": "/kafka/bootstrapServers",
    "kafka.topics=serving": "/kafka/topics",
    "kafka.topics={a b}": "/kafka/topics/0",
    "kafka.outputTopic=a/b": "/kafka/outputTopic",
    "kafka.group=": "/kafka/group",
    "kafka.staticMembership=yes": "/kafka/staticMembership",
    "kafka.security.protocol=TLS": "/kafka/security/protocol",
    "kafka.security.sasl.mechanism=SCRAM": "/kafka/security/sasl/mechanism",
    "kafka.security.sasl.password=hunter2": "'password' not allowed",
    "kafka.properties.Client\\.Id=a": "invalid propertyName 'Client.Id'",
    "kafka.secretProperties.ssl\\.key\\.password.name=a": "missing property 'key'",
    "settings.idle_timeut=5m": "'idle_timeut' not allowed",
    "settings.idle_timeout=soon": "/settings/idle_timeout",
    "settings.max_commit_outputs=0": "/settings/max_commit_outputs",
    "settings.max_stats_bytes=lots": "/settings/max_stats_bytes",
    "settings.start=yesterday": "/settings/start",
    "settings.delivery=once": "/settings/delivery",
    "settings.paths.request=id": "invalid propertyName 'request'",
    "settings.labels.a=1": "/settings/labels/a",
    "settings.topics={other}": "'topics' not allowed",
    "settings.shutdown_timeout=null": "at '/settings': missing property 'shutdown_timeout'",
    "kafka.group=null": "at '/kafka': missing property 'group'",
    "kafka.security=null": "at '/kafka': missing property 'security'",
    "image=null": "missing property 'image'",
    "image.digest=latest": "/image/digest",
    "replicas=-1": "/replicas",
    "http.port=0": "/http/port",
    "http.host=::": "/http/host",
    "updateStrategy.type=Recreate": "/updateStrategy/type",
    "podDisruptionBudget.maxUnavailable=0": "/podDisruptionBudget/maxUnavailable",
    "podDisruptionBudget.maxUnavailable=0%": "/podDisruptionBudget/maxUnavailable",
    "metrics.podMonitor.interval=often": "/metrics/podMonitor/interval",
    "keda.minReplicas=0": "/keda/minReplicas",
    "strimzi.user.authentication=plain": "/strimzi/user/authentication",
    "topicJob.replicationFactor=0": "/topicJob/replicationFactor",
    "extraEnv[0].value=a": "/extraEnv/0",
    "extraEnv[0].name=A,extraEnv[0].value=1": "/extraEnv/0/value",
}


@every_helm
@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_is_named(value: str, major: str) -> None:
    with pytest.raises(HelmError) as refusal:
        template("--values", CASES["minimal"], "--set", value, major=major)
    assert "values don't meet the specifications of the schema" in str(refusal.value)
    assert WRONG[value] in str(refusal.value)


SASL = "kafka.security.protocol=SASL_SSL,kafka.security.sasl.mechanism=PLAIN"
USER = "kafka.security.sasl.existingSecret=user"
STRIMZI_USER = "strimzi.user.enabled=true,strimzi.cluster=main,kafka.security.protocol=SASL_SSL"

# What does not go together, and the sentence about it.
TOGETHER = {
    "kafka.bootstrapServers=": "kafka.bootstrapServers is required",
    "kafka.topics=null": "kafka.topics is required",
    "kafka.outputTopic=same,kafka.deadLetterTopic=same": 'kafka.outputTopic are both "same"',
    "kafka.properties.sasl\\.password=hunter2": "kafka.properties.sasl.password would be stored in",
    "kafka.producerProperties.ssl\\.key\\.password=x": "kafka.producerProperties.ssl.key.password",
    "kafka.properties.sasl\\.oauthbearer\\.assertion\\.private\\.key\\.passphrase=x": (
        "would be stored in"
    ),
    "kafka.properties.sasl\\.oauthbearer\\.assertion\\.private\\.key\\.pem=x": "would be stored in",
    "kafka.properties.security\\.protocol=SSL": "security.protocol is not allowed here",
    f"{SASL},{USER},kafka.secretProperties.sasl\\.password.name=b,"
    "kafka.secretProperties.sasl\\.password.key=k": "kafka.secretProperties.sasl.password is set",
    "kafka.security.protocol=SSL,kafka.security.tls.ca.existingSecret=a,"
    "kafka.properties.ssl\\.ca\\.location=/b": "kafka.properties.ssl.ca.location is set twice",
    "kafka.topics={in,acceptance-records}": 'kafka.topics contains "acceptance-records"',
    "nameOverride=my.app": '"acceptance-my.app" is not a valid Service name',
    "commonLabels.app\\.kubernetes\\.io/name=a": "commonLabels contains app.kubernetes.io/name",
    "podLabels.app\\.kubernetes\\.io/instance=a": "podLabels contains app.kubernetes.io/instance",
    "commonLabels.team=a,podLabels.team=b": "podLabels and commonLabels both contain team",
    "kafka.security.protocol=SASL_SSL,kafka.security.sasl.mechanism=OAUTHBEARER," + USER: (
        "kafka.security.sasl.existingSecret has no effect with OAUTHBEARER"
    ),
    "kafka.consumerProperties.group\\.instance\\.id=a": "would be the same in all pods",
    "kafka.staticMembership=false,kafka.properties.group\\.instance\\.id=a": "the same in all pods",
    "extraEnv[0].name=ACCEPTANCE_TRANSACTIONAL_ID,extraEnv[0].value=a": (
        "extraEnv contains ACCEPTANCE_TRANSACTIONAL_ID, which the chart sets"
    ),
    "kafka.security.protocol=SASL_SSL": "kafka.security.sasl.mechanism is required",
    SASL: "kafka.security.sasl.existingSecret is required",
    USER: "kafka.security.protocol is PLAINTEXT, which does not use the SASL user",
    "kafka.security.tls.ca.existingSecret=ca": "which does not use kafka.security.tls",
    "kafka.security.protocol=SSL,kafka.security.tls.ca.existingSecret=a,"
    "kafka.security.tls.ca.existingConfigMap=b": "both existingSecret and existingConfigMap",
    "terminationGracePeriodSeconds=29": "terminationGracePeriodSeconds is 29: with "
    "settings.shutdown_timeout 20s set it to at least 30",
    "settings.shutdown_timeout=2m,terminationGracePeriodSeconds=60": "set it to at least 130",
    "metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true": "scrape every pod twice",
    "keda.enabled=true,keda.minReplicas=7": "keda.minReplicas is 7, above keda.maxReplicas",
    "keda.enabled=true,kafka.topics={^serving.*}": "keda.enabled needs topics by name",
    "strimzi.topics.enabled=true": "strimzi.cluster is required",
    STRIMZI_USER + ",kafka.topics={^serving.*}": "strimzi.user.extraAcls",
    STRIMZI_USER + ",strimzi.namespace=kafka": "copy the user's secret to serving",
    f"{STRIMZI_USER},strimzi.namespace=kafka,{USER},kafka.security.sasl.mechanism=SCRAM-SHA-512": (
        "copy the secret of the cluster's CA to serving"
    ),
    STRIMZI_USER + ",topicJob.enabled=true": "use strimzi.topics.enabled",
    "topicJob.enabled=true,strimzi.topics.enabled=true,strimzi.cluster=main": "enable one",
    "topicJob.enabled=true,topicJob.existingSecret=admin": "kafka.security.protocol is PLAINTEXT",
}


@pytest.mark.parametrize("values", TOGETHER)
def test_what_does_not_go_together_is_refused_with_the_reason(values: str) -> None:
    with pytest.raises(HelmError) as refusal:
        template("--values", CASES["minimal"], "--set", values)
    assert TOGETHER[values] in str(refusal.value)


def test_without_values_the_first_thing_to_give_is_named() -> None:
    with pytest.raises(
        HelmError, match=r"kafka\.bootstrapServers is required: set it to host:port"
    ):
        template()


def test_values_and_schema_have_the_same_names() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def compare(value: dict[str, Any], described: dict[str, Any], path: str) -> None:
        if not described.get("properties") or path in ("/settings", "/resources"):
            return
        assert value.keys() == described["properties"].keys() - {"global"}, path
        for name, member in value.items():
            if isinstance(member, dict):
                compare(member, described["properties"][name], f"{path}/{name}")

    compare(values, schema, "")
