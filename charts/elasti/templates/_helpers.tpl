{{- define "elasti.name" -}}
{{- .Values.global.nameOverride | default .Chart.Name -}}
{{- end -}}

{{- define "elasti.fullname" -}}
{{- $name := include "elasti.name" . -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if contains $name .Release.Name -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- $full = .Values.global.fullnameOverride | default $full -}}
{{- if gt (len $full) 19 -}}
{{- fail (printf "the name %q has more than 19 characters, and with it the name of a Service more than 63: set global.fullnameOverride" $full) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{- define "elasti.operator" -}}
{{ include "elasti.fullname" . }}-operator-controller-manager
{{- end -}}

{{- define "elasti.operatorService" -}}
{{ include "elasti.fullname" . }}-operator-controller-service
{{- end -}}

{{- define "elasti.resolver" -}}
{{ include "elasti.fullname" . }}-resolver
{{- end -}}

{{- define "elasti.resolverService" -}}
{{ include "elasti.fullname" . }}-resolver-service
{{- end -}}

{{- define "elasti.instance" -}}
app.kubernetes.io/name: {{ include "elasti.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Selectors cannot be changed: nothing that a user sets but names may come in here. */}}
{{- define "elasti.operatorSelector" -}}
control-plane: controller-manager
{{ include "elasti.instance" . }}
{{- end -}}

{{- define "elasti.resolverSelector" -}}
app: elasti-resolver
{{ include "elasti.instance" . }}
{{- end -}}

{{- define "elasti.chartLabels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Several maps as one: of two that have a key, the first counts. */}}
{{- define "elasti.merged" -}}
{{- $all := dict -}}
{{- range . -}}
{{- $all = merge $all (. | default dict) -}}
{{- end -}}
{{- with $all }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/*
Labels and annotations of an object. root; part, the values of what it belongs to, if to one; selector, its
template's name; labels and annotations, lists of maps for this object alone.
*/}}
{{- define "elasti.metadata" -}}
{{- $global := .root.Values.global -}}
{{- $part := .part | default dict -}}
{{- $own := include (.selector | default "elasti.instance") .root | fromYaml -}}
{{- $chart := include "elasti.chartLabels" .root | fromYaml -}}
labels:
  {{- include "elasti.merged" (concat (list $own $chart) (.labels | default list) (list $part.commonLabels $global.labels)) | nindent 2 }}
{{- with include "elasti.merged" (concat (.annotations | default list) (list $part.commonAnnotations $global.annotations)) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The same for pods: without what changes from version to version. */}}
{{- define "elasti.podMetadata" -}}
{{- $global := .root.Values.global -}}
{{- $own := include .selector .root | fromYaml -}}
labels:
  {{- include "elasti.merged" (list $own .part.podLabels $global.podLabels .part.commonLabels $global.labels) | nindent 2 }}
{{- with include "elasti.merged" (list .part.podAnnotations $global.podAnnotations .part.commonAnnotations $global.annotations) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "elasti.image" -}}
{{- $registry := .image.registry | default .root.Values.global.image.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}:{{ .image.tag }}
{{- end -}}

{{/* Where a pod runs, and as whom. */}}
{{- define "elasti.placement" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include .selector .root | nindent 8 }}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
  {{- end }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Numbers of values files are floats, which print large ones as 1e+06. */}}
{{- define "elasti.text" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{- define "elasti.commonEnv" -}}
- name: ELASTI_OPERATOR_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with .root.Values.global.allowedNamespaces }}
- name: WATCH_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- if .container.sentry.enabled }}
- name: SENTRY_DSN
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.global.secretName }}
      key: SENTRY_DSN
{{- with .container.sentry.environment }}
- name: SENTRY_ENVIRONMENT
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the resolvers are, for whatever writes slices. */}}
{{- define "elasti.operatorEnv" -}}
- name: ELASTI_RESOLVER_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: ELASTI_RESOLVER_SERVICE_NAME
  value: {{ include "elasti.resolverService" . }}
- name: ELASTI_RESOLVER_PORTS
  value: {{ .Values.elastiController.manager.env.resolverPorts | quote }}
{{- end -}}

{{/* The port of a --…-bind-address among args, or the usual one. */}}
{{- define "elasti.boundPort" -}}
{{- $port := .usual -}}
{{- range .args -}}
{{- if hasPrefix (printf "--%s=" $.flag) . -}}
{{- $port = regexFind "[0-9]+$" . -}}
{{- end -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/* Metrics are on 8013, too, whatever the args say of their own port: off, as in KubeElasti's values, or on loopback. */}}
{{- define "elasti.metricsPort" -}}
{{- $args := .Values.elastiController.manager.args -}}
{{- $port := include "elasti.boundPort" (dict "args" $args "flag" "metrics-bind-address" "usual" "8080") -}}
{{- range $args -}}
{{- if regexMatch "^--metrics-bind-address=(0$|127\\.|localhost|\\[::1\\])" . -}}
{{- $port = "8013" -}}
{{- end -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{- define "elasti.healthPort" -}}
{{- include "elasti.boundPort" (dict "args" .Values.elastiController.manager.args "flag" "health-probe-bind-address" "usual" "8081") -}}
{{- end -}}

{{/* Seconds. A date plus the duration, less the date: templates know no other way to read one. */}}
{{- define "elasti.reqTimeout" -}}
{{- $text := include "elasti.text" .Values.elastiResolver.proxy.env.reqTimeout -}}
{{- if regexMatch "^[0-9]+$" $text -}}
{{- $text -}}
{{- else -}}
{{- $then := toDate "2006-01-02" "2000-01-01" -}}
{{- sub (mustDateModify $text $then | unixEpoch) (unixEpoch $then) -}}
{{- end -}}
{{- end -}}

{{- define "elasti.subject" -}}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
