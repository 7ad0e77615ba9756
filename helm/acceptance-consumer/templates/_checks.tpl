{{/* Combinations that no schema can refuse. Each message names the value to change. */}}
{{- define "acceptance-consumer.checks" -}}
{{- $kafka := .Values.kafka -}}
{{- $security := $kafka.security -}}
{{- $strimzi := .Values.strimzi -}}
{{- if not $kafka.bootstrapServers -}}
{{- fail "kafka.bootstrapServers is required: host:port, separated by commas" -}}
{{- end -}}
{{- if not $kafka.topics -}}
{{- fail "kafka.topics is required: the input topics, such as [serving-responses]" -}}
{{- end -}}
{{- if eq $kafka.outputTopic $kafka.deadLetterTopic -}}
{{- fail (printf "kafka.deadLetterTopic is %q, and so is kafka.outputTopic" $kafka.outputTopic) -}}
{{- end -}}

{{- range $map, $properties := dict "properties" $kafka.properties "consumerProperties" $kafka.consumerProperties "producerProperties" $kafka.producerProperties -}}
{{- range $property, $_ := $properties -}}
{{- if and (regexMatch "password|secret|jaas|^ssl\\.key\\.pem$" $property) (not (regexMatch "\\.(location|url|file)$" $property)) -}}
{{- fail (printf "kafka.%s.%s would lie in a ConfigMap: name a secret for it in kafka.security or kafka.secretProperties" $map $property) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $kafka.staticMembership (hasKey $kafka.consumerProperties "group.instance.id") -}}
{{- fail "kafka.consumerProperties.group.instance.id would be the same in all pods: kafka.staticMembership sets it" -}}
{{- end -}}

{{- $sasl := include "acceptance-consumer.sasl" . | fromJson -}}
{{- $tls := include "acceptance-consumer.tls" . | fromJson -}}

{{- if and (or $strimzi.topics.enabled $strimzi.user.enabled) (not $strimzi.cluster) -}}
{{- fail "strimzi.cluster is required with strimzi.topics.enabled and strimzi.user.enabled" -}}
{{- end -}}
{{- if $strimzi.user.enabled -}}
{{- range $kafka.topics -}}
{{- if and (hasPrefix "^" .) (not $strimzi.user.extraAcls) -}}
{{- fail (printf "kafka.topics has the pattern %q: give Read and Describe on its topics in strimzi.user.extraAcls" .) -}}
{{- end -}}
{{- end -}}
{{- if and $strimzi.namespace (ne $strimzi.namespace .Release.Namespace) -}}
{{- if and (eq $strimzi.user.authentication "scram-sha-512") (not $security.sasl.existingSecret) -}}
{{- fail (printf "strimzi.namespace is %s: copy the user's secret to %s and name it in kafka.security.sasl.existingSecret" $strimzi.namespace .Release.Namespace) -}}
{{- end -}}
{{- if and (eq $strimzi.user.authentication "tls") (not $security.tls.client.existingSecret) -}}
{{- fail (printf "strimzi.namespace is %s: copy the user's secret to %s and name it in kafka.security.tls.client.existingSecret" $strimzi.namespace .Release.Namespace) -}}
{{- end -}}
{{- if and (hasSuffix "SSL" $security.protocol) (not $tls.caName) -}}
{{- fail (printf "strimzi.namespace is %s: copy the secret of the cluster's authority to %s and name it in kafka.security.tls.ca.existingSecret" $strimzi.namespace .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if hasPrefix "SASL_" $security.protocol -}}
{{- if not $sasl.mechanism -}}
{{- fail (printf "kafka.security.sasl.mechanism is required with kafka.security.protocol %s" $security.protocol) -}}
{{- end -}}
{{- if and (not $sasl.secret) (ne $sasl.mechanism "OAUTHBEARER") -}}
{{- fail (printf "kafka.security.sasl.existingSecret is required with kafka.security.sasl.mechanism %s" $sasl.mechanism) -}}
{{- end -}}
{{- else if or $sasl.mechanism $sasl.secret -}}
{{- fail (printf "kafka.security.protocol is %s, so that the SASL user is not used: set SASL_SSL or SASL_PLAINTEXT" $security.protocol) -}}
{{- end -}}
{{- if and (or $tls.caName $tls.client) (not (hasSuffix "SSL" $security.protocol)) -}}
{{- fail (printf "kafka.security.protocol is %s, so that kafka.security.tls is not used: set SSL or SASL_SSL" $security.protocol) -}}
{{- end -}}
{{- if and $security.tls.ca.existingSecret $security.tls.ca.existingConfigMap -}}
{{- fail "kafka.security.tls.ca names both existingSecret and existingConfigMap: name one" -}}
{{- end -}}

{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
{{- fail "metrics.podMonitor and metrics.serviceMonitor are both enabled: every pod would be scraped twice" -}}
{{- end -}}

{{- if .Values.keda.enabled -}}
{{- if gt (int .Values.keda.minReplicas) (int .Values.keda.maxReplicas) -}}
{{- fail (printf "keda.minReplicas is %d, above keda.maxReplicas, which is %d" (int .Values.keda.minReplicas) (int .Values.keda.maxReplicas)) -}}
{{- end -}}
{{- range $kafka.topics -}}
{{- if hasPrefix "^" . -}}
{{- fail (printf "kafka.topics has the pattern %q: keda.enabled needs topics by name" .) -}}
{{- end -}}
{{- end -}}
{{- if and (hasPrefix "SASL_" $security.protocol) (eq $sasl.mechanism "OAUTHBEARER") -}}
{{- fail "kafka.security.sasl.mechanism is OAUTHBEARER, for which keda.enabled cannot make the authentication of KEDA" -}}
{{- end -}}
{{- end -}}

{{- if .Values.topicJob.enabled -}}
{{- if $strimzi.topics.enabled -}}
{{- fail "topicJob.enabled and strimzi.topics.enabled would both create the topics: enable one" -}}
{{- end -}}
{{- if and $strimzi.user.enabled (not .Values.topicJob.existingSecret) (not $security.sasl.existingSecret) (not $security.tls.client.existingSecret) -}}
{{- fail "topicJob.enabled runs before strimzi.user.enabled has made its user: use strimzi.topics.enabled" -}}
{{- end -}}
{{- if and .Values.topicJob.existingSecret (not (hasPrefix "SASL_" $security.protocol)) -}}
{{- fail (printf "topicJob.existingSecret names a SASL user, but kafka.security.protocol is %s" $security.protocol) -}}
{{- end -}}
{{- end -}}
{{- end -}}
