"""What goes wrong with Kafka, sorted by what there is to do about it.

The client says of a transaction's errors whether to call again, to abort, or that the producer is
lost. Of all other errors it says nothing, so that those which pass by themselves are listed here.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException


class ClusterError(Exception):
    """The cluster cannot be used as the settings say; the message says why."""


class NoBrokerError(ClusterError):
    """No broker answers, which may pass."""


class KafkaFailureError(Exception):
    """Kafka reports an error from which this process cannot go on."""


class DeliveryError(KafkaFailureError):
    """The broker will never take a message."""


class FencedError(KafkaFailureError):
    """Another process has taken this one's place."""


class ClientsLostError(Exception):
    """The Kafka clients are of no use any more; new ones may be."""


class UnansweredError(ClientsLostError):
    """Something of Kafka's has not answered for so long that new clients may do better."""


# The client does not mark errors of consumers and of the admin client as retriable.
_MAY_PASS: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError._DESTROY_BROKER,  # noqa: SLF001 - of one that metadata no longer lists.
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - of one whose leader is not known.
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
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # Of a broker that has not heard of a new topic yet.
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


def may_pass(error: KafkaError) -> bool:
    """Return whether to ask again: brokers come and go, and leaders and coordinators move."""
    if error.fatal() or error.txn_requires_abort():
        return False
    return error.retriable() or error.code() in _MAY_PASS


def is_forbidden(error: KafkaError) -> bool:
    """Tell whether the cluster's administrator does not allow what was asked for."""
    return error.code() in _FORBIDDEN


def cause_of(exception: KafkaException) -> KafkaError:
    """Return the error that the client's exception carries."""
    cause = exception.args[0]
    assert isinstance(cause, KafkaError)  # noqa: S101 - the client makes it so.
    return cause
