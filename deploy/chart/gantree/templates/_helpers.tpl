{{/* Labels that find the pods, and those that all objects have. */}}
{{- define "gantree.selector" -}}
app.kubernetes.io/name: gantree
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "gantree.labels" -}}
{{ include "gantree.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
{{/* The webhook's pods are none of the scheduler's. */}}
{{- define "gantree.webhook.selector" -}}
app.kubernetes.io/name: gantree-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "gantree.webhook.labels" -}}
{{ include "gantree.webhook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
{{- define "gantree.inDatabase" -}}
{{- if .Values.journal.databaseSecret.name }}yes{{ end -}}
{{- end -}}
{{- define "gantree.problem" -}}
{{- if and (gt (int .Values.replicas) 1) (not (include "gantree.inDatabase" .)) -}}
several replicas need a journal in PostgreSQL: set journal.databaseSecret.name
{{- else if and .Values.dryRun (include "gantree.inDatabase" .) -}}
a dry run keeps its journal in a directory: leave out journal.databaseSecret
{{- else if and .Values.podMonitor.enabled (not (and .Values.api.tlsSecret .Values.podMonitor.tokenSecret)) -}}
podMonitor needs api.tlsSecret and podMonitor.tokenSecret
{{- else if and .Values.webhook.enabled (not .Values.webhook.certManager.enabled) (not (and .Values.webhook.tlsSecret .Values.webhook.caBundle)) -}}
the webhook needs a certificate: set webhook.certManager.enabled, or webhook.tlsSecret and webhook.caBundle
{{- end -}}
{{- end -}}
