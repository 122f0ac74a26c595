{{- define "elasti.operatorRules" -}}
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices]
  verbs: [list, watch, patch]
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices/status]
  verbs: [patch]
# To own what it makes, where the API server checks that.
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices/restricted]
  verbs: [create]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [get, patch]
- apiGroups: [argoproj.io]
  resources: [rollouts]
  verbs: [list, watch]
- apiGroups: [argoproj.io]
  resources: [rollouts/scale]
  verbs: [get, patch]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, watch, patch]
{{- with .Values.elastiController.extraRules }}
{{ toYaml . }}
{{- end }}
{{- if not .Values.global.allowedNamespaces }}
# Where a kind keeps its replicas.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get]
{{- if .Values.elastiController.manager.authenticateKnocks }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}
{{- end }}
{{- end -}}

{{- define "elasti.resolverRules" -}}
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- end -}}
