{{- define "readback.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "readback.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- /* Other pods than members: no budget, rule or service of theirs is to count them. */ -}}
{{- define "readback.consoleSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-console
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "readback.labels" -}}
{{ include "readback.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "readback.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "readback.name" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}
{{- /* A key of a ConfigMap has no slash. */ -}}
{{- define "readback.fileKey" -}}
{{ . | replace "/" "__" }}
{{- end }}
{{- /* What members and the console are told of secrets, and where configuration, topology and secrets are mounted. */ -}}
{{- define "readback.env" -}}
{{- with .Values.tls.secretName }}
- { name: READBACK_SECURITY__CA, value: /etc/readback-tls/ca.crt }
{{- if $.Values.tls.client }}
- { name: READBACK_SECURITY__CERTIFICATE, value: /etc/readback-tls/tls.crt }
- { name: READBACK_SECURITY__KEY, value: /etc/readback-tls/tls.key }
{{- end }}
{{- end }}
{{- with .Values.sasl.secretName }}
- { name: READBACK_SECURITY__SASL__MECHANISM, value: {{ $.Values.sasl.mechanism | quote }} }
- { name: READBACK_SECURITY__SASL__USERNAME, value: {{ required "sasl.username is needed with sasl.secretName" $.Values.sasl.username | quote }} }
- { name: READBACK_SECURITY__SASL__PASSWORD__FILE, value: /etc/readback-sasl/password }
{{- end }}
{{- with .Values.registrySecret.secretName }}
- { name: READBACK_REGISTRY__TOKEN__FILE, value: /etc/readback-registry/token }
{{- end }}
{{- with .Values.env }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}
{{- define "readback.mounts" -}}
- { name: config, mountPath: /etc/readback, readOnly: true }
{{- if .Values.topology.files }}
- { name: topology, mountPath: {{ .Values.topology.path | quote }}, readOnly: true }
{{- end }}
{{- if .Values.tls.secretName }}
- { name: tls, mountPath: /etc/readback-tls, readOnly: true }
{{- end }}
{{- if .Values.sasl.secretName }}
- { name: sasl, mountPath: /etc/readback-sasl, readOnly: true }
{{- end }}
{{- if .Values.registrySecret.secretName }}
- { name: registry, mountPath: /etc/readback-registry, readOnly: true }
{{- end }}
{{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}
{{- define "readback.volumes" -}}
- name: config
  configMap: { name: {{ include "readback.name" . }} }
{{- if .Values.topology.files }}
- name: topology
  configMap:
    name: {{ include "readback.name" . }}-topology
    items:
      {{- range $path, $_ := .Values.topology.files }}
      - { key: {{ include "readback.fileKey" $path }}, path: {{ $path | quote }} }
      {{- end }}
{{- end }}
{{- with .Values.tls.secretName }}
- { name: tls, secret: { secretName: {{ . | quote }}, defaultMode: 0440 } }
{{- end }}
{{- with .Values.sasl.secretName }}
- { name: sasl, secret: { secretName: {{ . | quote }}, defaultMode: 0440 } }
{{- end }}
{{- with .Values.registrySecret.secretName }}
- { name: registry, secret: { secretName: {{ . | quote }}, defaultMode: 0440 } }
{{- end }}
{{- with .Values.extraVolumes }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}
{{- /* What every pod and container of ours may. */ -}}
{{- define "readback.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}
{{- define "readback.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
