{{/* Names and labels. Pods of a StatefulSet carry its name and a hash in a label of at most 63 characters. */}}

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

{{/* Return the labels of every object of the release. */}}
{{- define "acceptance-consumer.releaseLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Return the labels that select only the service's pods. Selectors can never change. */}}
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
