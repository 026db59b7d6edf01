{{- define "candor.name" -}}
{{- if contains "candor" .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}{{ printf "%s-candor" .Release.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "candor.selector" -}}
app.kubernetes.io/name: candor
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "candor.labels" -}}
{{ include "candor.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Part of a URL: urlquery writes a space as +, which stands for itself in the user of a URL. */}}
{{- define "candor.quoted" -}}
{{- urlquery . | replace "+" "%20" -}}
{{- end -}}

{{- /* A quantity in bytes. */}}
{{- define "candor.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mul (regexFind "^[0-9]+" . | int64) (index $units (regexReplaceAll "^[0-9]+" . "") | int64) -}}
{{- end -}}

{{- define "candor.account" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "candor.name" .) }}{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end -}}

{{- define "candor.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The role of a part in the database, as YAML: its user, Secret and the Secret's entry. */}}
{{- define "candor.role" -}}
{{- $postgresql := .root.Values.postgresql -}}
{{- $owner := $postgresql.owner | default dict -}}
{{- if and $owner.user (not .root.Values.worker.enabled) -}}
{{- fail "postgresql.owner: enable the worker, which is the only one that takes this role" -}}
{{- else if and $owner.user (eq .part "worker") -}}
{{- $_ := required "postgresql.owner.existingSecret: name the Secret with the owner's password" $owner.existingSecret -}}
{{- toYaml $owner -}}
{{- else -}}
{{- pick $postgresql "user" "existingSecret" "passwordKey" | toYaml -}}
{{- end -}}
{{- end -}}

{{/* What a probe of a path does: the kubelet has no certificate to show where the service requires one. */}}
{{- define "candor.probe" -}}
{{- if .settings.TLS_CLIENT_CA -}}
exec: {command: [python, -I, -S, /opt/venv/bin/candor-healthcheck, {{ .path }}]}
{{- else -}}
httpGet: {path: {{ .path }}, port: http{{ if .settings.TLS_CERT }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end -}}

{{/* What serving pods and the worker have in common; the argument is a dict of `root` and `part` (serve or worker). */}}
{{- define "candor.pod" -}}
{{- $ := .root -}}
{{- $values := .root.Values -}}
{{- $worker := eq .part "worker" -}}
{{- $background := or $worker (not $values.worker.enabled) -}}
{{- $settings := merge (ternary (deepCopy $values.worker.settings) (dict) $worker) $values.settings -}}
serviceAccountName: {{ include "candor.account" $ | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ add $values.stop.delaySeconds (mul 2 $values.stop.drainSeconds) 30 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if not $worker }}
topologySpreadConstraints:
  {{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "candor.selector" $ | nindent 8 }}
        app.kubernetes.io/component: serve
  {{- end }}
{{- end }}
{{- if $background }}
initContainers:
  - name: keys
    {{- include "candor.container" . | nindent 4 }}
    command: [sh, -ec]
    args:
      - |
        {{- /* Status 1 is a key that was revoked: that keeps no pod from its start. */}}
        {{- range $name, $scopes := $values.keys.scopes }}
        candor keys add /secrets/keys/{{ $name }} --name {{ $name }}{{ range $scopes }} --scope {{ . }}{{ end }} || test $? -eq 1
        {{- end }}
    resources: {{ ternary $values.worker.resources $values.resources $worker | toYaml | nindent 6 }}
{{- end }}
containers:
  - name: candor
    {{- include "candor.container" . | nindent 4 }}
    command: [candor, {{ ternary "worker" "serve" $worker }}]
    ports:
      - {name: http, containerPort: 8000}
      {{- if and $values.grpc.enabled (not $worker) }}
      - {name: grpc, containerPort: 8001}
      {{- end }}
    startupProbe:
      {{- include "candor.probe" (dict "settings" $settings "path" "/readyz") | nindent 6 }}
      periodSeconds: 2
      timeoutSeconds: 3
      failureThreshold: {{ div (add $values.startupSeconds 1) 2 }}
    readinessProbe:
      {{- include "candor.probe" (dict "settings" $settings "path" "/readyz") | nindent 6 }}
      periodSeconds: 2
      timeoutSeconds: 3
      failureThreshold: 2
    livenessProbe:
      {{- include "candor.probe" (dict "settings" $settings "path" "/livez") | nindent 6 }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    resources:
      {{- if $worker }}
      {{- toYaml $values.worker.resources | nindent 6 }}
      {{- else }}
      {{- $limits := $values.resources.limits | default dict }}
      {{- if $values.gpu.enabled }}{{ $limits = merge (dict $values.gpu.resource $values.gpu.count) $limits }}{{ end }}
      {{- toYaml (merge (dict "limits" $limits) $values.resources) | nindent 6 }}
      {{- end }}
volumes:
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 256Mi}
  - name: scratch
    emptyDir: {sizeLimit: {{ $values.bundles.cacheSize }}}
  {{- if and $values.bundles.cacheHostPath $values.bundles.cacheClaim }}{{ fail "bundles: set either cacheHostPath or cacheClaim" }}{{ end }}
  {{- with $values.bundles.cacheHostPath }}
  - name: cache
    hostPath: {path: {{ . | quote }}, type: Directory}
  {{- end }}
  {{- with $values.bundles.cacheClaim }}
  - name: cache
    persistentVolumeClaim: {claimName: {{ . | quote }}}
  {{- end }}
  - name: database
    secret:
      {{- $role := include "candor.role" . | fromYaml }}
      secretName: {{ required "postgresql.existingSecret: name the Secret with the database's password" $role.existingSecret | quote }}
      items: [{key: {{ $role.passwordKey | quote }}, path: password}]
      defaultMode: 0440
  {{- if $background }}
  - name: keys
    secret:
      secretName: {{ required "keys.existingSecret: name the Secret with API keys" $values.keys.existingSecret | quote }}
      defaultMode: 0440
  {{- end }}
  {{- if and $background $values.webhook.url }}
  - name: webhook
    secret:
      secretName: {{ required "webhook.existingSecret: name the Secret that signs deliveries" $values.webhook.existingSecret | quote }}
      items: [{key: {{ $values.webhook.secretKey | quote }}, path: secret}]
      defaultMode: 0440
  {{- end }}
  {{- with $values.bundles.existingClaim }}
  - name: bundles
    persistentVolumeClaim: {claimName: {{ . | quote }}, readOnly: true}
  {{- end }}
  {{- if and $values.policies.enabled $values.policies.existingConfigMap }}
  - name: policies
    configMap:
      name: {{ $values.policies.existingConfigMap | quote }}
      items:
        {{- range $values.policies.entries }}
        - {key: {{ . | quote }}, path: {{ replace "__" "/" . | quote }}}
        {{- end }}
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "candor.container" -}}
{{- $ := .root -}}
{{- $values := .root.Values -}}
{{- $worker := eq .part "worker" -}}
{{- $background := or $worker (not $values.worker.enabled) -}}
image: {{ printf "%s:%s" $values.image.repository ($values.image.tag | default $.Chart.AppVersion) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext: {{ include "candor.confined" . | nindent 2 }}
env:
  {{- $role := include "candor.role" . | fromYaml }}
  {{- $url := printf "postgresql://%s@%s:%v/%s" (include "candor.quoted" $role.user) (required "postgresql.host: name the database's server" $values.postgresql.host) (int $values.postgresql.port) $values.postgresql.database }}
  {{- with $values.postgresql.parameters }}{{ $url = printf "%s?%s" $url . }}{{ end }}
  {{- if eq (empty $values.bundles.url) (empty $values.bundles.existingClaim) }}{{ fail "bundles: set either url or existingClaim" }}{{ end }}
  {{- if and $values.policies.enabled (not $values.policies.existingConfigMap) (not $values.bundles.existingClaim) }}{{ fail "policies: without bundles.existingClaim, name a ConfigMap in existingConfigMap" }}{{ end }}
  {{- if and $values.policies.enabled $values.policies.existingConfigMap (not $values.policies.entries) }}{{ fail "policies.entries: name the entries of the ConfigMap" }}{{ end }}
  {{- range $name := concat (keys $values.settings) (keys $values.worker.settings) }}
  {{- if hasPrefix "CANDOR_" $name }}{{ fail (printf "settings: omit CANDOR_ from %s" $name) }}{{ end }}
  {{- if has $name (list "HOST" "PORT" "UDS" "GRPC_PORT") }}{{ fail (printf "settings: omit %s; the pods listen where the chart's Service and probes expect it" $name) }}{{ end }}
  {{- with get (dict "STOP_DELAY_S" "stop.delaySeconds" "DRAIN_TIMEOUT_S" "stop.drainSeconds" "BACKGROUND" "worker.enabled") $name }}{{ fail (printf "settings: omit %s; other parts of the pods depend on it, so set %s" $name .) }}{{ end }}
  {{- end }}
  {{- $own := dict "HOST" "0.0.0.0" "PORT" "8000" "DATABASE_URL" $url "DATABASE_PASSWORD_FILE" "/secrets/database/password" }}
  {{- /* Empty is unset: the image sets a port. */}}
  {{- $_ := set $own "GRPC_PORT" (ternary "8001" "" (and $values.grpc.enabled (not $worker))) }}
  {{- $_ := set $own "BUNDLES" (ternary "/bundles" $values.bundles.url (ne $values.bundles.existingClaim "")) }}
  {{- $_ := set $own "BUNDLE_CACHE" "/var/lib/candor/bundles" }}
  {{- /* A quarter is left for uploads and for the copy of a next version. */}}
  {{- $_ := set $own "BUNDLE_CACHE_BYTES" (div (mul (include "candor.bytes" $values.bundles.cacheSize | int64) 3) 4 | toString) }}
  {{- $_ := set $own "UPLOADS" "/var/lib/candor/uploads" }}
  {{- $_ := set $own "STOP_DELAY_S" ($values.stop.delaySeconds | toString) }}
  {{- $_ := set $own "DRAIN_TIMEOUT_S" ($values.stop.drainSeconds | toString) }}
  {{- $_ := set $own "BACKGROUND" ($background | toString) }}
  {{- if not $worker }}
  {{- $_ := set $own "WORKERS" ($values.workersPerPod | toString) }}
  {{- $_ := set $own "PROVIDER" (ternary "cuda" "cpu" $values.gpu.enabled) }}
  {{- else }}
  {{- $_ := set $own "PROVIDER" "cpu" }}
  {{- end }}
  {{- if and $background $values.webhook.url }}
  {{- $_ := set $own "WEBHOOK_URL" $values.webhook.url }}
  {{- $_ := set $own "WEBHOOK_SECRET_FILE" "/secrets/webhook/secret" }}
  {{- end }}
  {{- $settings := merge (ternary (deepCopy $values.worker.settings) (dict) $worker) $values.settings $own }}
  {{- /* The worker is the only one that recalibrates and monitors: it has all models. */}}
  {{- if $worker }}{{- $_ := unset $settings "MODELS" }}{{- end }}
  {{- range $name, $value := $settings }}
  - {name: CANDOR_{{ $name }}, value: {{ $value | quote }}}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: scratch, mountPath: /var/lib/candor}
  {{- if or $values.bundles.cacheHostPath $values.bundles.cacheClaim }}
  - {name: cache, mountPath: /var/lib/candor/bundles}
  {{- end }}
  - {name: database, mountPath: /secrets/database, readOnly: true}
  {{- if $background }}
  - {name: keys, mountPath: /secrets/keys, readOnly: true}
  {{- end }}
  {{- if and $background $values.webhook.url }}
  - {name: webhook, mountPath: /secrets/webhook, readOnly: true}
  {{- end }}
  {{- if $values.bundles.existingClaim }}
  - {name: bundles, mountPath: /bundles, subPath: {{ $values.bundles.subPath | quote }}, readOnly: true}
  {{- end }}
  {{- if $values.policies.enabled }}
  {{- if $values.policies.existingConfigMap }}
  - {name: policies, mountPath: /policies, readOnly: true}
  {{- else }}
  - {name: bundles, mountPath: /policies, subPath: {{ $values.policies.subPath | quote }}, readOnly: true}
  {{- end }}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
