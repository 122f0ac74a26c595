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

{{/* Selectors cannot be changed, and are KubeElasti's: no value may come in here. */}}
{{- define "elasti.instance" -}}
app.kubernetes.io/name: elasti
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "elasti.operatorSelector" -}}
control-plane: controller-manager
{{ include "elasti.instance" . }}
{{- end -}}

{{- define "elasti.resolverSelector" -}}
app: elasti-resolver
{{ include "elasti.instance" . }}
{{- end -}}

{{/* Of objects, by which KubeElasti's ServiceMonitors, and those that people have written, find Services. */}}
{{- define "elasti.operatorLabels" -}}
control-plane: controller-manager
app.kubernetes.io/name: elasti-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "elasti.resolverLabels" -}}
app: elasti-resolver
app.kubernetes.io/name: elasti-resolver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "elasti.chartLabels" -}}
app.kubernetes.io/part-of: elasti
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
Labels and annotations of an object. root; part, the values of what it belongs to, if to one; own, the name of the
template of its labels; labels and annotations, lists of maps for this object alone.
*/}}
{{- define "elasti.metadata" -}}
{{- $global := .root.Values.global -}}
{{- $part := .part | default dict -}}
{{- $own := include (.own | default "elasti.instance") .root | fromYaml -}}
{{- $chart := include "elasti.chartLabels" .root | fromYaml -}}
labels:
  {{- include "elasti.merged" (concat (list $own $chart) (.labels | default list) (list $part.commonLabels $global.labels)) | nindent 2 }}
{{- with include "elasti.merged" (concat (.annotations | default list) (list $part.commonAnnotations $global.annotations)) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The same for pods: without what changes from version to version, and with where their metrics are, if anywhere. */}}
{{- define "elasti.podMetadata" -}}
{{- $global := .root.Values.global -}}
{{- $own := include .selector .root | fromYaml -}}
{{- $scraped := dict -}}
{{- with .metricsPort -}}
{{- $scraped = dict "prometheus.io/scrape" "true" "prometheus.io/path" "/metrics" "prometheus.io/port" . -}}
{{- end -}}
labels:
  {{- include "elasti.merged" (list $own .part.podLabels $global.podLabels .part.commonLabels $global.labels) | nindent 2 }}
{{- with include "elasti.merged" (list .part.podAnnotations $global.podAnnotations .part.commonAnnotations $global.annotations $scraped) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "elasti.image" -}}
{{- $registry := .image.registry | default .root.Values.global.image.registry | trimSuffix "/" -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/*
How many resolvers there are now, within what the autoscaler allows: without a number an upgrade from a manifest that has
one, KubeElasti's say, would end all but one of them.
*/}}
{{- define "elasti.resolverReplicas" -}}
{{- $scaling := .Values.elastiResolver.autoscaling -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "elasti.resolver" .) -}}
{{- $now := dig "spec" "replicas" 0 $live -}}
{{- min $scaling.maxReplicas (max $scaling.minReplicas $now) -}}
{{- end -}}

{{/* Of pods that name no other. It is cluster-wide. */}}
{{- define "elasti.priorityClass" -}}
{{- if and .Values.priorityClass.create (not .Values.global.allowedNamespaces) }}{{ include "elasti.fullname" . }}{{ end -}}
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
{{- with .part.priorityClassName | default (include "elasti.priorityClass" .root) }}
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
      key: {{ .sentryKey }}
      # Who has no such key is not reported on, and runs.
      optional: true
{{- with .container.sentry.environment }}
- name: SENTRY_ENVIRONMENT
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* First and last. What the operator would not start with is told here already. */}}
{{- define "elasti.resolverPorts" -}}
{{- $text := .Values.elastiController.manager.env.resolverPorts -}}
{{- $first := splitList "-" $text | first | int -}}
{{- $last := splitList "-" $text | last | int -}}
{{- $wrong := printf "elastiController.manager.env.resolverPorts is %q" $text -}}
{{- if or (gt $first $last) (gt $last 65535) -}}
{{- fail (printf "%s: right would be the first and the last port, such as 10000-32767" $wrong) -}}
{{- end -}}
{{- range list 8012 8013 -}}
{{- if and (le $first .) (le . $last) -}}
{{- fail (printf "%s, which contains the resolvers' own port %d: right would be a range without it, such as 10000-32767" $wrong .) -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* Where the resolvers are, for whatever writes slices. */}}
{{- define "elasti.operatorEnv" -}}
- name: ELASTI_NAME
  value: {{ include "elasti.fullname" . }}
- name: ELASTI_RESOLVER_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: ELASTI_RESOLVER_SERVICE_NAME
  value: {{ include "elasti.resolverService" . }}
- name: ELASTI_RESOLVER_PORTS
  value: {{ include "elasti.resolverPorts" . | quote }}
{{- end -}}

{{/* What args say of a flag, `--flag=value` or `--flag` and `value`, or the usual. */}}
{{- define "elasti.flag" -}}
{{- $value := .usual -}}
{{- $follows := false -}}
{{- range .args -}}
{{- if $follows -}}
{{- $value = . -}}
{{- else if hasPrefix (printf "--%s=" $.flag) . -}}
{{- $value = trimPrefix (printf "--%s=" $.flag) . -}}
{{- end -}}
{{- $follows = eq . (printf "--%s" $.flag) -}}
{{- end -}}
{{- $value -}}
{{- end -}}

{{/* Metrics are on 8013, too, whatever the args say of their own port: off, as in KubeElasti's values, or on loopback. */}}
{{- define "elasti.metricsPort" -}}
{{- $address := include "elasti.flag" (dict "args" .Values.elastiController.manager.args "flag" "metrics-bind-address" "usual" ":8080") -}}
{{- if regexMatch "^(0$|127\\.|localhost|\\[::1\\])" $address }}8013{{ else }}{{ regexFind "[0-9]+$" $address }}{{ end -}}
{{- end -}}

{{- define "elasti.healthPort" -}}
{{- include "elasti.flag" (dict "args" .Values.elastiController.manager.args "flag" "health-probe-bind-address" "usual" ":8081") | regexFind "[0-9]+$" -}}
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
