"""The errors of Kafka, by what to do about them.

The client marks the errors of transactional calls as retriable, abortable or fatal. It does not
mark other errors, so this module lists the transient ones.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException


class ClusterError(Exception):
    """The cluster cannot be used with these settings; the message says why."""


class PropertyError(ClusterError):
    """librdkafka rejects a property of the settings."""


class NoBrokerError(ClusterError):
    """No broker is reachable; a later attempt may succeed."""


class KafkaFailureError(Exception):
    """Kafka reported an error that no retry in this process can fix."""


class DeliveryError(KafkaFailureError):
    """The broker rejects a message and would reject it again."""


class FencedError(KafkaFailureError):
    """Another process uses this instance's transactional id or group instance id."""


class ClientsLostError(Exception):
    """The Kafka clients have failed; the service continues with new ones."""


class UnansweredError(ClientsLostError):
    """A Kafka call did not return in time; new clients may get an answer."""


class Stopped(Exception):  # noqa: N818 - not an error.
    """The service is stopping; the caller gives up its work."""


# The client does not mark errors of consumers and of the admin client as retriable.
_TRANSIENT: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError._DESTROY_BROKER,  # noqa: SLF001 - metadata no longer lists the broker.
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - the leader is not known yet.
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # A broker may not know a new topic yet.
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def is_transient(error: KafkaError) -> bool:
    """Return whether to retry: brokers restart, and leaders and coordinators move."""
    if error.fatal() or error.txn_requires_abort():
        return False
    return error.retriable() or error.code() in _TRANSIENT


def is_forbidden(error: KafkaError) -> bool:
    """Return whether the cluster denies this service a permission."""
    return error.code() in _FORBIDDEN


def cause_of(exception: KafkaException) -> KafkaError:
    """Return the error that the client's exception carries."""
    cause: KafkaError = exception.args[0]
    return cause
