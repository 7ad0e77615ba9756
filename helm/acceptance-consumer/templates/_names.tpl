{{/* Names and labels. A StatefulSet's pods carry its name and a hash in a label of 63 characters. */}}

{{- define "acceptance-consumer.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "acceptance-consumer.serviceAccountName" -}}
{{- $made := ternary (include "acceptance-consumer.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $made .Values.serviceAccount.name -}}
{{- end -}}

{{- define "acceptance-consumer.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What everything of the release has in common. */}}
{{- define "acceptance-consumer.releaseLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What selects the service's pods, and no others of the release. Selectors can never change. */}}
{{- define "acceptance-consumer.selectorLabels" -}}
{{ include "acceptance-consumer.releaseLabels" . }}
app.kubernetes.io/component: consumer
{{- end -}}

{{- define "acceptance-consumer.labels" -}}
{{ include "acceptance-consumer.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}
