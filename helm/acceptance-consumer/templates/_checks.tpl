{{/* Reject combinations that the schema cannot reject. Each message names the value to change. */}}
{{- define "acceptance-consumer.checks" -}}
{{- $kafka := .Values.kafka -}}
{{- $security := $kafka.security -}}
{{- $strimzi := .Values.strimzi -}}
{{- if not $kafka.bootstrapServers -}}
{{- fail "kafka.bootstrapServers is required: set it to host:port, separated by commas" -}}
{{- end -}}
{{- if not $kafka.topics -}}
{{- fail "kafka.topics is required: set it to the input topics, such as [serving-responses]" -}}
{{- end -}}
{{- $name := include "acceptance-consumer.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%q is not a valid Service name: set fullnameOverride to a name of a-z, 0-9 and - that begins with a letter" $name) -}}
{{- end -}}
{{- range list $kafka.outputTopic $kafka.deadLetterTopic -}}
{{- if has . $kafka.topics -}}
{{- fail (printf "kafka.topics contains %q, which is an output topic: remove it" .) -}}
{{- end -}}
{{- end -}}
{{- if eq $kafka.outputTopic $kafka.deadLetterTopic -}}
{{- fail (printf "kafka.deadLetterTopic and kafka.outputTopic are both %q: change one" $kafka.outputTopic) -}}
{{- end -}}

{{- range $map, $properties := dict "properties" $kafka.properties "consumerProperties" $kafka.consumerProperties "producerProperties" $kafka.producerProperties -}}
{{- range $property, $_ := $properties -}}
{{- if and (regexMatch "pass(word|phrase)|secret|jaas|key\\.pem$" $property) (not (regexMatch "\\.(location|url|file)$" $property)) -}}
{{- fail (printf "kafka.%s.%s would be stored in a ConfigMap: name a secret for it in kafka.security or kafka.secretProperties" $map $property) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $property, $_ := $kafka.properties -}}
{{- if has $property (list "security.protocol" "sasl.mechanism" "sasl.mechanisms" "sasl.username") -}}
{{- fail (printf "kafka.properties.%s is not allowed here: set it in kafka.security" $property) -}}
{{- end -}}
{{- end -}}
{{- $given := dict -}}
{{- range include "acceptance-consumer.credentials" . | fromJsonArray -}}
{{- if or (hasKey $given .property) (hasKey $kafka.properties .property) -}}
{{- fail (printf "kafka.%s.%s is set twice: remove one" (ternary "properties" "secretProperties" (hasKey $kafka.properties .property)) .property) -}}
{{- end -}}
{{- $_ := set $given .property true -}}
{{- end -}}
{{- range $map, $properties := dict "properties" $kafka.properties "consumerProperties" $kafka.consumerProperties -}}
{{- if hasKey $properties "group.instance.id" -}}
{{- fail (printf "kafka.%s.group.instance.id would be the same in all pods: remove it; kafka.staticMembership sets it per pod" $map) -}}
{{- end -}}
{{- end -}}
{{- $variables := dict -}}
{{- range include "acceptance-consumer.env" . | fromYamlArray -}}
{{- if hasKey $variables .name -}}
{{- fail (printf "extraEnv contains %s, which the chart sets: remove it" .name) -}}
{{- end -}}
{{- $_ := set $variables .name true -}}
{{- end -}}

{{- $selector := include "acceptance-consumer.selectorLabels" . | fromYaml -}}
{{- $own := dict "app.kubernetes.io/version" "" "app.kubernetes.io/managed-by" "" "helm.sh/chart" "" | merge $selector -}}
{{- range $path, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "metrics.podMonitor.labels" .Values.metrics.podMonitor.labels "metrics.serviceMonitor.labels" .Values.metrics.serviceMonitor.labels "metrics.prometheusRule.labels" .Values.metrics.prometheusRule.labels "metrics.dashboards.labels" .Values.metrics.dashboards.labels -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $own $key -}}
{{- fail (printf "%s contains %s, a label that the chart sets: remove it" $path $key) -}}
{{- end -}}
{{- if and (ne $path "commonLabels") (hasKey $.Values.commonLabels $key) -}}
{{- fail (printf "%s and commonLabels both contain %s: remove one" $path $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $sasl := include "acceptance-consumer.sasl" . | fromJson -}}
{{- $tls := include "acceptance-consumer.tls" . | fromJson -}}

{{- if and (or $strimzi.topics.enabled $strimzi.user.enabled) (not $strimzi.cluster) -}}
{{- fail "strimzi.cluster is required with strimzi.topics.enabled and strimzi.user.enabled" -}}
{{- end -}}
{{- if $strimzi.user.enabled -}}
{{- range $kafka.topics -}}
{{- if and (hasPrefix "^" .) (not $strimzi.user.extraAcls) -}}
{{- fail (printf "kafka.topics contains the pattern %q: add Read and Describe on its topics to strimzi.user.extraAcls" .) -}}
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
{{- fail (printf "strimzi.namespace is %s: copy the secret of the cluster's CA to %s and name it in kafka.security.tls.ca.existingSecret" $strimzi.namespace .Release.Namespace) -}}
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
{{- if and $sasl.secret (eq $sasl.mechanism "OAUTHBEARER") -}}
{{- fail "kafka.security.sasl.existingSecret has no effect with OAUTHBEARER: name the secrets in kafka.secretProperties" -}}
{{- end -}}
{{- else if or $sasl.mechanism $sasl.secret -}}
{{- fail (printf "kafka.security.protocol is %s, which does not use the SASL user: set SASL_SSL or SASL_PLAINTEXT" $security.protocol) -}}
{{- end -}}
{{- if and (or $tls.caName $tls.client) (not (hasSuffix "SSL" $security.protocol)) -}}
{{- fail (printf "kafka.security.protocol is %s, which does not use kafka.security.tls: set SSL or SASL_SSL" $security.protocol) -}}
{{- end -}}
{{- if and $security.tls.ca.existingSecret $security.tls.ca.existingConfigMap -}}
{{- fail "kafka.security.tls.ca names both existingSecret and existingConfigMap: remove one" -}}
{{- end -}}

{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
{{- fail "metrics.podMonitor and metrics.serviceMonitor would scrape every pod twice: disable one" -}}
{{- end -}}

{{- if .Values.keda.enabled -}}
{{- if gt (int .Values.keda.minReplicas) (int .Values.keda.maxReplicas) -}}
{{- fail (printf "keda.minReplicas is %d, above keda.maxReplicas (%d): lower it" (int .Values.keda.minReplicas) (int .Values.keda.maxReplicas)) -}}
{{- end -}}
{{- range $kafka.topics -}}
{{- if hasPrefix "^" . -}}
{{- fail (printf "kafka.topics contains the pattern %q: keda.enabled needs topics by name" .) -}}
{{- end -}}
{{- end -}}
{{- if and (hasPrefix "SASL_" $security.protocol) (eq $sasl.mechanism "OAUTHBEARER") -}}
{{- fail "kafka.security.sasl.mechanism is OAUTHBEARER, which the chart cannot configure for KEDA: disable keda.enabled" -}}
{{- end -}}
{{- end -}}

{{- if .Values.topicJob.enabled -}}
{{- if $strimzi.topics.enabled -}}
{{- fail "topicJob.enabled and strimzi.topics.enabled would both create the topics: enable one" -}}
{{- end -}}
{{- if and $strimzi.user.enabled (not .Values.topicJob.existingSecret) (not $security.sasl.existingSecret) (not $security.tls.client.existingSecret) -}}
{{- fail "topicJob.enabled runs before Strimzi creates the user of strimzi.user.enabled: use strimzi.topics.enabled instead" -}}
{{- end -}}
{{- if and .Values.topicJob.existingSecret (not (hasPrefix "SASL_" $security.protocol)) -}}
{{- fail (printf "topicJob.existingSecret names a SASL user, but kafka.security.protocol is %s: set SASL_SSL or SASL_PLAINTEXT" $security.protocol) -}}
{{- end -}}
{{- if and .Values.topicJob.existingSecret (eq $sasl.mechanism "OAUTHBEARER") -}}
{{- fail "topicJob.existingSecret names a user with a password, but kafka.security.sasl.mechanism is OAUTHBEARER: remove it" -}}
{{- end -}}
{{- end -}}
{{- end -}}
