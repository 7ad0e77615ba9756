{{/* Convert the values to the service's settings. */}}

{{- define "acceptance-consumer.directory" -}}
/etc/acceptance-consumer
{{- end -}}

{{/*
Return the properties that secrets hold, as JSON: property, file, source (secret or configMap), name and key;
`read` is true if the property's value is the content of the file, and false if it is its path.
*/}}
{{- define "acceptance-consumer.credentials" -}}
{{- $found := list -}}
{{- $sasl := include "acceptance-consumer.sasl" . | fromJson -}}
{{- with $sasl.secret -}}
{{- if not $sasl.username -}}
{{- $found = append $found (dict "property" "sasl.username" "file" "sasl.username" "source" "secret" "name" . "key" $sasl.usernameKey "read" true) -}}
{{- end -}}
{{- $found = append $found (dict "property" "sasl.password" "file" "sasl.password" "source" "secret" "name" . "key" $sasl.passwordKey "read" true) -}}
{{- end -}}
{{- $tls := include "acceptance-consumer.tls" . | fromJson -}}
{{- with $tls.caName -}}
{{- $found = append $found (dict "property" "ssl.ca.location" "file" "ca.crt" "source" $tls.caSource "name" . "key" $tls.caKey "read" false) -}}
{{- end -}}
{{- with $tls.client -}}
{{- $found = append $found (dict "property" "ssl.certificate.location" "file" "tls.crt" "source" "secret" "name" . "key" $tls.certificateKey "read" false) -}}
{{- $found = append $found (dict "property" "ssl.key.location" "file" "tls.key" "source" "secret" "name" . "key" $tls.privateKeyKey "read" false) -}}
{{- end -}}
{{- range $property, $ref := .Values.kafka.secretProperties -}}
{{- $found = append $found (dict "property" $property "file" $property "source" "secret" "name" $ref.name "key" $ref.key "read" true) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Return the SASL user; the user of strimzi.user if the values name none. */}}
{{- define "acceptance-consumer.sasl" -}}
{{- $sasl := .Values.kafka.security.sasl -}}
{{- $near := or (not .Values.strimzi.namespace) (eq .Values.strimzi.namespace .Release.Namespace) -}}
{{- $made := and .Values.strimzi.user.enabled $near (eq .Values.strimzi.user.authentication "scram-sha-512") (not $sasl.existingSecret) -}}
{{- if $made -}}
{{- $name := include "acceptance-consumer.fullname" . -}}
{{- dict "mechanism" "SCRAM-SHA-512" "secret" $name "username" $name "passwordKey" "password" | toJson -}}
{{- else -}}
{{- dict "mechanism" $sasl.mechanism "secret" $sasl.existingSecret "username" $sasl.username "usernameKey" $sasl.usernameKey "passwordKey" $sasl.passwordKey | toJson -}}
{{- end -}}
{{- end -}}

{{/* Return the certificates; those of Strimzi's cluster and user if the values name none. */}}
{{- define "acceptance-consumer.tls" -}}
{{- $tls := .Values.kafka.security.tls -}}
{{- $result := dict -}}
{{- $user := .Values.strimzi.user -}}
{{- $near := or (not .Values.strimzi.namespace) (eq .Values.strimzi.namespace .Release.Namespace) -}}
{{- if $tls.ca.existingSecret -}}
{{- $_ := merge $result (dict "caName" $tls.ca.existingSecret "caSource" "secret" "caKey" $tls.ca.key) -}}
{{- else if $tls.ca.existingConfigMap -}}
{{- $_ := merge $result (dict "caName" $tls.ca.existingConfigMap "caSource" "configMap" "caKey" $tls.ca.key) -}}
{{- else if and $user.enabled $near (hasSuffix "SSL" .Values.kafka.security.protocol) -}}
{{- $_ := merge $result (dict "caName" (printf "%s-cluster-ca-cert" .Values.strimzi.cluster) "caSource" "secret" "caKey" "ca.crt") -}}
{{- end -}}
{{- if $tls.client.existingSecret -}}
{{- $_ := merge $result (dict "client" $tls.client.existingSecret "certificateKey" $tls.client.certificateKey "privateKeyKey" $tls.client.privateKeyKey) -}}
{{- else if and $user.enabled $near (eq $user.authentication "tls") -}}
{{- $_ := merge $result (dict "client" (include "acceptance-consumer.fullname" .) "certificateKey" "user.crt" "privateKeyKey" "user.key") -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}

{{/* Return the settings file. JSON strings, numbers and lists are valid TOML; TOML tables come last. */}}
{{- define "acceptance-consumer.settings" -}}
{{- $kafka := .Values.kafka -}}
bootstrap_servers = {{ toJson $kafka.bootstrapServers }}
topics = {{ toJson $kafka.topics }}
output_topic = {{ toJson $kafka.outputTopic }}
dead_letter_topic = {{ toJson $kafka.deadLetterTopic }}
group = {{ toJson $kafka.group }}
http_address = {{ printf "%s:%v" .Values.http.host .Values.http.port | toJson }}
{{- range $name, $value := .Values.settings }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "map" $value }}
{{ include "acceptance-consumer.table" (dict "name" $name "entries" $value) }}
{{- end }}
{{- end }}
{{- $shared := dict -}}
{{- if ne $kafka.security.protocol "PLAINTEXT" -}}
{{- $_ := set $shared "security.protocol" $kafka.security.protocol -}}
{{- end -}}
{{- $sasl := include "acceptance-consumer.sasl" . | fromJson -}}
{{- with $sasl.mechanism -}}
{{- $_ := set $shared "sasl.mechanism" . -}}
{{- end -}}
{{- if $sasl.username -}}
{{- $_ := set $shared "sasl.username" $sasl.username -}}
{{- end -}}
{{- range include "acceptance-consumer.credentials" . | fromJsonArray -}}
{{- if not .read -}}
{{- $_ := set $shared .property (printf "%s/credentials/%s" (include "acceptance-consumer.directory" $) .file) -}}
{{- end -}}
{{- end }}
{{ include "acceptance-consumer.table" (dict "name" "kafka" "entries" (merge $shared $kafka.properties)) }}
{{- include "acceptance-consumer.table" (dict "name" "kafka.consumer" "entries" $kafka.consumerProperties) }}
{{- include "acceptance-consumer.table" (dict "name" "kafka.producer" "entries" $kafka.producerProperties) }}
{{- end -}}

{{- define "acceptance-consumer.table" -}}
{{- with .entries }}
[{{ $.name }}]
{{- range $key, $value := . }}
{{ toJson $key }} = {{ toJson $value }}
{{- end }}
{{ end -}}
{{- end -}}

{{/* Return the variables that differ between pods, and the properties that secrets hold. */}}
{{- define "acceptance-consumer.env" -}}
- name: ACCEPTANCE_SETTINGS
  value: {{ include "acceptance-consumer.directory" . }}/settings/settings.toml
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- /* The namespace is included, because releases with one name in two namespaces would fence each other. */}}
- name: ACCEPTANCE_TRANSACTIONAL_ID
  value: {{ printf "%s-$(POD_NAMESPACE).$(POD_NAME)" .Values.kafka.group | quote }}
{{- if .Values.kafka.staticMembership }}
- name: ACCEPTANCE_KAFKA_CONSUMER_GROUP_INSTANCE_ID
  value: $(POD_NAMESPACE).$(POD_NAME)
{{- end }}
{{- range include "acceptance-consumer.credentials" . | fromJsonArray }}
{{- if .read }}
- name: {{ printf "ACCEPTANCE_KAFKA_%s_FILE" (.property | upper | replace "." "_") }}
  value: {{ include "acceptance-consumer.directory" $ }}/credentials/{{ .file }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "acceptance-consumer.volumeMounts" -}}
- name: settings
  mountPath: {{ include "acceptance-consumer.directory" . }}/settings
  readOnly: true
{{- if include "acceptance-consumer.credentials" . | fromJsonArray }}
- name: credentials
  mountPath: {{ include "acceptance-consumer.directory" . }}/credentials
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Return the volumes. Arguments: the context as `context`, the name of the ConfigMap as `settings`. */}}
{{- define "acceptance-consumer.volumes" -}}
- name: settings
  configMap:
    name: {{ .settings }}
{{- with include "acceptance-consumer.credentials" .context | fromJsonArray }}
- name: credentials
  projected:
    defaultMode: 0440
    sources:
    {{- range . }}
    - {{ .source }}:
        name: {{ .name }}
        items:
        - key: {{ .key }}
          path: {{ .file }}
    {{- end }}
{{- end }}
{{- with .context.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Return the whole seconds of a duration in the service's format: 250ms, 20s, 2m, 1h or a number. */}}
{{- define "acceptance-consumer.seconds" -}}
{{- $text := toString . -}}
{{- $factor := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) (default "s" (regexFind "(ms|s|m|h)$" $text)) -}}
{{- regexFind "^[0-9.]+" $text | float64 | mulf $factor | ceil | int -}}
{{- end -}}

{{/* Return the grace period. A stop takes shutdown_timeout, plus five seconds if a broker does not answer. */}}
{{- define "acceptance-consumer.gracePeriod" -}}
{{- $min := add (include "acceptance-consumer.seconds" .Values.settings.shutdown_timeout | int) 10 -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if and (not (kindIs "invalid" $given)) (lt (int $given) (int $min)) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d: with settings.shutdown_timeout %v set it to at least %d, or to null" (int $given) .Values.settings.shutdown_timeout $min) -}}
{{- end -}}
{{- default $min $given | int -}}
{{- end -}}
