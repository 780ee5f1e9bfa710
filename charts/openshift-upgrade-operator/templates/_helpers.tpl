{{/* Names are fixed: a cluster has one operator, and a second release of the chart must not pass unnoticed. */}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: upgrade-operator
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: openshift-upgrade-operator
{{- end }}

{{/* The namespace whose UpgradeConfigs and UpgradeJobs are served. */}}
{{- define "operator.served" -}}
{{ .Values.operator.namespace | default .Release.Namespace }}
{{- end }}

{{- define "operator.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "operator.port" -}}
{{ .Values.operator.listen | splitList ":" | last }}
{{- end }}

{{/* Every value of `operator` is the flag of its name. Those for Prometheus are none without its address. */}}
{{- define "operator.flags" -}}
{{- $values := .Values.operator -}}
{{- range $name, $value := $values }}
{{- $counts := or $values.prometheusUrl (not (hasPrefix "prometheus" $name)) }}
{{- if and $counts (ne (toString $value) "") }}
- {{ printf "--%s=%v" (kebabcase $name) $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The ServiceAccount of the operator, as subject of a binding. */}}
{{- define "operator.subject" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Where the operator's pods run. */}}
{{- define "operator.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.nodeAffinity }}
affinity:
  nodeAffinity:
    {{- toYaml .Values.nodeAffinity | nindent 4 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
