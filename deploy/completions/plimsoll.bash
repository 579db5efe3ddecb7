# bash completion of plimsoll. Made by scripts/docs.py; do not edit.
_plimsoll() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= words= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); else
                COMPREPLY=($(compgen -c -f -- "$cur")); fi
            return
        fi
        case ${COMP_WORDS[i]} in serve|status|top|logs|events|restart|reload|drain|upgrade|enforce|sample|doctor|explain|report|snapshot|check|lint|soak|drydock|plan|manifest|config|help|hold) [[ -n $verb ]] || verb=${COMP_WORDS[i]} ;; esac
    done
    case $verb:$prev in
    serve:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    serve:--tls.cert_reqs) COMPREPLY=($(compgen -W "none optional required" -- "$cur")); return ;;
    serve:--tls.min_version) COMPREPLY=($(compgen -W "1.2 1.3" -- "$cur")); return ;;
    serve:--http.forwarded) COMPREPLY=($(compgen -W "keep set append" -- "$cur")); return ;;
    serve:--reload.watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--main.fence) COMPREPLY=($(compgen -W "on log off" -- "$cur")); return ;;
    serve:--logs.workers) COMPREPLY=($(compgen -W "auto raw prefix json" -- "$cur")); return ;;
    serve:--logs.format) COMPREPLY=($(compgen -W "auto logfmt json" -- "$cur")); return ;;
    serve:--logs.level) COMPREPLY=($(compgen -W "debug info warn error" -- "$cur")); return ;;
    serve:--logs.access) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--engine) COMPREPLY=($(compgen -W "auto bentoml vllm sglang llama-server tgi ollama generic" -- "$cur")); return ;;
    serve:--offline) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    serve:--dependencies) COMPREPLY=($(compgen -W "auto inline process" -- "$cur")); return ;;
    serve:--mode) COMPREPLY=($(compgen -W "observe guard enforce" -- "$cur")); return ;;
    serve:--required) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--route.strip) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--cors.enabled) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--cors.allow_credentials) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--warmup.samples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--warmup.examples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--warmup.until_flat) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--zygote.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    serve:--read_ahead.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    serve:--fast_lane) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    serve:--explain) COMPREPLY=($(compgen -W "auto fork inline off" -- "$cur")); return ;;
    serve:--explain_code) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--replace.mode) COMPREPLY=($(compgen -W "auto overlap handover" -- "$cur")); return ;;
    serve:--replace.ready_while_held) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    serve:--traffic.fairness) COMPREPLY=($(compgen -W "key address none" -- "$cur")); return ;;
    serve:--traffic.idempotent) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    serve:--openai.over_limit) COMPREPLY=($(compgen -W "refuse clamp" -- "$cur")); return ;;
    serve:--openai.usage) COMPREPLY=($(compgen -W "pass inject" -- "$cur")); return ;;
    serve:--memory.charge) COMPREPLY=($(compgen -W "auto worst expected learnt none" -- "$cur")); return ;;
    serve:--memory.sync) COMPREPLY=($(compgen -W "off sampled always" -- "$cur")); return ;;
    serve:--llama.split_mode) COMPREPLY=($(compgen -W "none layer row" -- "$cur")); return ;;
    serve:--llama.flash_attn) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    serve:--llama.swa_full) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--llama.embeddings) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    serve:--llama.admission) COMPREPLY=($(compgen -W "worst optimistic" -- "$cur")); return ;;
    serve:--llama.prefix_sharing) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    status:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    top:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    logs:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    events:--level) COMPREPLY=($(compgen -W "debug info warn error" -- "$cur")); return ;;
    events:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    restart:--mode) COMPREPLY=($(compgen -W "auto overlap handover" -- "$cur")); return ;;
    restart:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    reload:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    drain:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    upgrade:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    enforce:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    sample:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    doctor:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    doctor:--tls.cert_reqs) COMPREPLY=($(compgen -W "none optional required" -- "$cur")); return ;;
    doctor:--tls.min_version) COMPREPLY=($(compgen -W "1.2 1.3" -- "$cur")); return ;;
    doctor:--http.forwarded) COMPREPLY=($(compgen -W "keep set append" -- "$cur")); return ;;
    doctor:--reload.watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--main.fence) COMPREPLY=($(compgen -W "on log off" -- "$cur")); return ;;
    doctor:--logs.workers) COMPREPLY=($(compgen -W "auto raw prefix json" -- "$cur")); return ;;
    doctor:--logs.format) COMPREPLY=($(compgen -W "auto logfmt json" -- "$cur")); return ;;
    doctor:--logs.level) COMPREPLY=($(compgen -W "debug info warn error" -- "$cur")); return ;;
    doctor:--logs.access) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--engine) COMPREPLY=($(compgen -W "auto bentoml vllm sglang llama-server tgi ollama generic" -- "$cur")); return ;;
    doctor:--offline) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    doctor:--dependencies) COMPREPLY=($(compgen -W "auto inline process" -- "$cur")); return ;;
    doctor:--mode) COMPREPLY=($(compgen -W "observe guard enforce" -- "$cur")); return ;;
    doctor:--required) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--route.strip) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--cors.enabled) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--cors.allow_credentials) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--warmup.samples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--warmup.examples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--warmup.until_flat) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--zygote.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    doctor:--read_ahead.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    doctor:--fast_lane) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    doctor:--explain) COMPREPLY=($(compgen -W "auto fork inline off" -- "$cur")); return ;;
    doctor:--explain_code) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--replace.mode) COMPREPLY=($(compgen -W "auto overlap handover" -- "$cur")); return ;;
    doctor:--replace.ready_while_held) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    doctor:--traffic.fairness) COMPREPLY=($(compgen -W "key address none" -- "$cur")); return ;;
    doctor:--traffic.idempotent) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    doctor:--openai.over_limit) COMPREPLY=($(compgen -W "refuse clamp" -- "$cur")); return ;;
    doctor:--openai.usage) COMPREPLY=($(compgen -W "pass inject" -- "$cur")); return ;;
    doctor:--memory.charge) COMPREPLY=($(compgen -W "auto worst expected learnt none" -- "$cur")); return ;;
    doctor:--memory.sync) COMPREPLY=($(compgen -W "off sampled always" -- "$cur")); return ;;
    doctor:--llama.split_mode) COMPREPLY=($(compgen -W "none layer row" -- "$cur")); return ;;
    doctor:--llama.flash_attn) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    doctor:--llama.swa_full) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--llama.embeddings) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    doctor:--llama.admission) COMPREPLY=($(compgen -W "worst optimistic" -- "$cur")); return ;;
    doctor:--llama.prefix_sharing) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    explain:--mode) COMPREPLY=($(compgen -W "auto fork inline" -- "$cur")); return ;;
    explain:--history) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    explain:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    report:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    snapshot:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    check:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    check:--tls.cert_reqs) COMPREPLY=($(compgen -W "none optional required" -- "$cur")); return ;;
    check:--tls.min_version) COMPREPLY=($(compgen -W "1.2 1.3" -- "$cur")); return ;;
    check:--http.forwarded) COMPREPLY=($(compgen -W "keep set append" -- "$cur")); return ;;
    check:--reload.watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--main.fence) COMPREPLY=($(compgen -W "on log off" -- "$cur")); return ;;
    check:--logs.workers) COMPREPLY=($(compgen -W "auto raw prefix json" -- "$cur")); return ;;
    check:--logs.format) COMPREPLY=($(compgen -W "auto logfmt json" -- "$cur")); return ;;
    check:--logs.level) COMPREPLY=($(compgen -W "debug info warn error" -- "$cur")); return ;;
    check:--logs.access) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--engine) COMPREPLY=($(compgen -W "auto bentoml vllm sglang llama-server tgi ollama generic" -- "$cur")); return ;;
    check:--offline) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    check:--dependencies) COMPREPLY=($(compgen -W "auto inline process" -- "$cur")); return ;;
    check:--mode) COMPREPLY=($(compgen -W "observe guard enforce" -- "$cur")); return ;;
    check:--required) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--route.strip) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--cors.enabled) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--cors.allow_credentials) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--warmup.samples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--warmup.examples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--warmup.until_flat) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--zygote.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    check:--read_ahead.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    check:--fast_lane) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    check:--explain) COMPREPLY=($(compgen -W "auto fork inline off" -- "$cur")); return ;;
    check:--explain_code) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--replace.mode) COMPREPLY=($(compgen -W "auto overlap handover" -- "$cur")); return ;;
    check:--replace.ready_while_held) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    check:--traffic.fairness) COMPREPLY=($(compgen -W "key address none" -- "$cur")); return ;;
    check:--traffic.idempotent) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    check:--openai.over_limit) COMPREPLY=($(compgen -W "refuse clamp" -- "$cur")); return ;;
    check:--openai.usage) COMPREPLY=($(compgen -W "pass inject" -- "$cur")); return ;;
    check:--memory.charge) COMPREPLY=($(compgen -W "auto worst expected learnt none" -- "$cur")); return ;;
    check:--memory.sync) COMPREPLY=($(compgen -W "off sampled always" -- "$cur")); return ;;
    check:--llama.split_mode) COMPREPLY=($(compgen -W "none layer row" -- "$cur")); return ;;
    check:--llama.flash_attn) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    check:--llama.swa_full) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--llama.embeddings) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    check:--llama.admission) COMPREPLY=($(compgen -W "worst optimistic" -- "$cur")); return ;;
    check:--llama.prefix_sharing) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    lint:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    soak:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    soak:--tls.cert_reqs) COMPREPLY=($(compgen -W "none optional required" -- "$cur")); return ;;
    soak:--tls.min_version) COMPREPLY=($(compgen -W "1.2 1.3" -- "$cur")); return ;;
    soak:--http.forwarded) COMPREPLY=($(compgen -W "keep set append" -- "$cur")); return ;;
    soak:--reload.watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--main.fence) COMPREPLY=($(compgen -W "on log off" -- "$cur")); return ;;
    soak:--logs.workers) COMPREPLY=($(compgen -W "auto raw prefix json" -- "$cur")); return ;;
    soak:--logs.format) COMPREPLY=($(compgen -W "auto logfmt json" -- "$cur")); return ;;
    soak:--logs.level) COMPREPLY=($(compgen -W "debug info warn error" -- "$cur")); return ;;
    soak:--logs.access) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--engine) COMPREPLY=($(compgen -W "auto bentoml vllm sglang llama-server tgi ollama generic" -- "$cur")); return ;;
    soak:--offline) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    soak:--dependencies) COMPREPLY=($(compgen -W "auto inline process" -- "$cur")); return ;;
    soak:--mode) COMPREPLY=($(compgen -W "observe guard enforce" -- "$cur")); return ;;
    soak:--required) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--route.strip) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--cors.enabled) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--cors.allow_credentials) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--warmup.samples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--warmup.examples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--warmup.until_flat) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--zygote.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    soak:--read_ahead.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    soak:--fast_lane) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    soak:--explain) COMPREPLY=($(compgen -W "auto fork inline off" -- "$cur")); return ;;
    soak:--explain_code) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--replace.mode) COMPREPLY=($(compgen -W "auto overlap handover" -- "$cur")); return ;;
    soak:--replace.ready_while_held) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    soak:--traffic.fairness) COMPREPLY=($(compgen -W "key address none" -- "$cur")); return ;;
    soak:--traffic.idempotent) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    soak:--openai.over_limit) COMPREPLY=($(compgen -W "refuse clamp" -- "$cur")); return ;;
    soak:--openai.usage) COMPREPLY=($(compgen -W "pass inject" -- "$cur")); return ;;
    soak:--memory.charge) COMPREPLY=($(compgen -W "auto worst expected learnt none" -- "$cur")); return ;;
    soak:--memory.sync) COMPREPLY=($(compgen -W "off sampled always" -- "$cur")); return ;;
    soak:--llama.split_mode) COMPREPLY=($(compgen -W "none layer row" -- "$cur")); return ;;
    soak:--llama.flash_attn) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    soak:--llama.swa_full) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--llama.embeddings) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    soak:--llama.admission) COMPREPLY=($(compgen -W "worst optimistic" -- "$cur")); return ;;
    soak:--llama.prefix_sharing) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    drydock:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    plan:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    manifest:--mode) COMPREPLY=($(compgen -W "entrypoint sidecar" -- "$cur")); return ;;
    manifest:--qos) COMPREPLY=($(compgen -W "burstable guaranteed" -- "$cur")); return ;;
    manifest:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    config:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    config:--tls.cert_reqs) COMPREPLY=($(compgen -W "none optional required" -- "$cur")); return ;;
    config:--tls.min_version) COMPREPLY=($(compgen -W "1.2 1.3" -- "$cur")); return ;;
    config:--http.forwarded) COMPREPLY=($(compgen -W "keep set append" -- "$cur")); return ;;
    config:--reload.watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--main.fence) COMPREPLY=($(compgen -W "on log off" -- "$cur")); return ;;
    config:--logs.workers) COMPREPLY=($(compgen -W "auto raw prefix json" -- "$cur")); return ;;
    config:--logs.format) COMPREPLY=($(compgen -W "auto logfmt json" -- "$cur")); return ;;
    config:--logs.level) COMPREPLY=($(compgen -W "debug info warn error" -- "$cur")); return ;;
    config:--logs.access) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--engine) COMPREPLY=($(compgen -W "auto bentoml vllm sglang llama-server tgi ollama generic" -- "$cur")); return ;;
    config:--offline) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    config:--dependencies) COMPREPLY=($(compgen -W "auto inline process" -- "$cur")); return ;;
    config:--mode) COMPREPLY=($(compgen -W "observe guard enforce" -- "$cur")); return ;;
    config:--required) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--route.strip) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--cors.enabled) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--cors.allow_credentials) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--warmup.samples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--warmup.examples) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--warmup.until_flat) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--zygote.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    config:--read_ahead.use) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    config:--fast_lane) COMPREPLY=($(compgen -W "auto off" -- "$cur")); return ;;
    config:--explain) COMPREPLY=($(compgen -W "auto fork inline off" -- "$cur")); return ;;
    config:--explain_code) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--watch) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--replace.mode) COMPREPLY=($(compgen -W "auto overlap handover" -- "$cur")); return ;;
    config:--replace.ready_while_held) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    config:--traffic.fairness) COMPREPLY=($(compgen -W "key address none" -- "$cur")); return ;;
    config:--traffic.idempotent) COMPREPLY=($(compgen -W "auto true false" -- "$cur")); return ;;
    config:--openai.over_limit) COMPREPLY=($(compgen -W "refuse clamp" -- "$cur")); return ;;
    config:--openai.usage) COMPREPLY=($(compgen -W "pass inject" -- "$cur")); return ;;
    config:--memory.charge) COMPREPLY=($(compgen -W "auto worst expected learnt none" -- "$cur")); return ;;
    config:--memory.sync) COMPREPLY=($(compgen -W "off sampled always" -- "$cur")); return ;;
    config:--llama.split_mode) COMPREPLY=($(compgen -W "none layer row" -- "$cur")); return ;;
    config:--llama.flash_attn) COMPREPLY=($(compgen -W "auto on off" -- "$cur")); return ;;
    config:--llama.swa_full) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--llama.embeddings) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    config:--llama.admission) COMPREPLY=($(compgen -W "worst optimistic" -- "$cur")); return ;;
    config:--llama.prefix_sharing) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    help:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    hold:--color) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
    serve:--ssl-certfile|serve:--ssl-keyfile|serve:--ssl-ca-certs|serve:--config|serve:-c|serve:--run_dir|serve:--state_dir|serve:--cache_dir|serve:--admin_token|serve:--api_keys.file|serve:--tls.certfile|serve:--tls.keyfile|serve:--tls.keyfile_password|serve:--tls.ca_certs|serve:--model|serve:--python|serve:--working_dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    status:--admin|status:--token-file|status:--config|status:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    top:--admin|top:--token-file|top:--config|top:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    logs:--admin|logs:--token-file|logs:--config|logs:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    events:--admin|events:--token-file|events:--config|events:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    restart:--admin|restart:--token-file|restart:--config|restart:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    reload:--admin|reload:--token-file|reload:--config|reload:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    drain:--admin|drain:--token-file|drain:--config|drain:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    upgrade:--admin|upgrade:--token-file|upgrade:--config|upgrade:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    enforce:--admin|enforce:--token-file|enforce:--config|enforce:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    sample:--file|sample:--admin|sample:--token-file|sample:--config|sample:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    doctor:--ssl-certfile|doctor:--ssl-keyfile|doctor:--ssl-ca-certs|doctor:--config|doctor:-c|doctor:--run_dir|doctor:--state_dir|doctor:--cache_dir|doctor:--admin_token|doctor:--api_keys.file|doctor:--tls.certfile|doctor:--tls.keyfile|doctor:--tls.keyfile_password|doctor:--tls.ca_certs|doctor:--model|doctor:--python|doctor:--working_dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    explain:--snapshot|explain:--admin|explain:--token-file|explain:--config|explain:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    report:--html|report:--record|report:--admin|report:--token-file|report:--config|report:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    snapshot:--since|snapshot:--html|snapshot:--folded|snapshot:--sqlite|snapshot:--log|snapshot:--config|snapshot:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    check:--body|check:--failing|check:--junit|check:--html|check:--ssl-certfile|check:--ssl-keyfile|check:--ssl-ca-certs|check:--config|check:-c|check:--run_dir|check:--state_dir|check:--cache_dir|check:--admin_token|check:--api_keys.file|check:--tls.certfile|check:--tls.keyfile|check:--tls.keyfile_password|check:--tls.ca_certs|check:--model|check:--python|check:--working_dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    lint:--stdin-name|lint:--python|lint:--config|lint:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    soak:--body|soak:--failing|soak:--junit|soak:--html|soak:--ssl-certfile|soak:--ssl-keyfile|soak:--ssl-ca-certs|soak:--admin|soak:--token-file|soak:--config|soak:-c|soak:--run_dir|soak:--state_dir|soak:--cache_dir|soak:--admin_token|soak:--api_keys.file|soak:--tls.certfile|soak:--tls.keyfile|soak:--tls.keyfile_password|soak:--tls.ca_certs|soak:--model|soak:--python|soak:--working_dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    drydock:--report|drydock:--record|drydock:--config|drydock:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    plan:--record|plan:--config|plan:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    manifest:--measured|manifest:--from|manifest:--out|manifest:--config|manifest:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    config:--ssl-certfile|config:--ssl-keyfile|config:--ssl-ca-certs|config:--config|config:-c|config:--run_dir|config:--state_dir|config:--cache_dir|config:--admin_token|config:--api_keys.file|config:--tls.certfile|config:--tls.keyfile|config:--tls.keyfile_password|config:--tls.ca_certs|config:--model|config:--python|config:--working_dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    help:--config|help:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    hold:--config|hold:-c) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    serve:--port|serve:-p|serve:--host|serve:--timeout|serve:--max-concurrency|serve:--name|serve:--worker-port|serve:--api-key|serve:--ssl-keyfile-password|serve:--listen|serve:--admin|serve:--user|serve:--group|serve:--workers.user|serve:--replicas|serve:--failed_exit|serve:--drain_delay|serve:--drain_timeout|serve:--limits.connections|serve:--limits.buffered|serve:--limits.request_line|serve:--limits.head|serve:--limits.headers|serve:--http.head_timeout|serve:--http.idle_timeout|serve:--http.write_timeout|serve:--http.body_min_rate|serve:--reload.debounce|serve:--upgrade.drain|serve:--main.hang_after|serve:--logs.access_skip|serve:--logs.tail|serve:--metrics.refresh|serve:--metrics.stale_after|serve:--metrics.max_series|serve:--record.path|serve:--record.max_bytes|serve:--record.max_age|serve:--device.sample|serve:--run|serve:--command|serve:--url|serve:--engine_args|serve:--args|serve:--env|serve:--pid|serve:--route.path|serve:--route.host|serve:--route.models|serve:--compat|serve:--cors.allow_origins|serve:--cors.allow_origin_regex|serve:--cors.allow_methods|serve:--cors.allow_headers|serve:--cors.expose_headers|serve:--cors.max_age|serve:--metrics.namespace|serve:--workers|serve:--threads|serve:--gpus|serve:--gpus_per_worker|serve:--oom_score_adj|serve:--start_timeout|serve:--stop_timeout|serve:--backoff.initial|serve:--backoff.max|serve:--backoff.attempts|serve:--probe.ready_path|serve:--probe.live_path|serve:--probe.interval|serve:--probe.timeout|serve:--liveness.silent_after|serve:--warmup.requests|serve:--warmup.max|serve:--warmup.max_time|serve:--canary.interval|serve:--canary.timeout|serve:--zygote.preload|serve:--zygote.max_age|serve:--zygote.after|serve:--read_ahead.files|serve:--replace.when|serve:--replace.hold|serve:--replace.drain|serve:--replace.max_requests|serve:--replace.max_requests_jitter|serve:--replace.max_per_hour|serve:--replace.host_rss|serve:--replace.zombies|serve:--empty_cache.reserved_over|serve:--empty_cache.every_requests|serve:--empty_cache.min_interval|serve:--traffic.timeout|serve:--traffic.stall|serve:--traffic.max_stream|serve:--traffic.max_concurrency|serve:--traffic.queue.max_requests|serve:--traffic.queue.max_wait|serve:--traffic.contended_status|serve:--limits.body|serve:--limits.replay|serve:--limits.input_tokens|serve:--limits.output_tokens|serve:--limits.image_pixels|serve:--limits.array_items|serve:--limits.json_depth|serve:--memory.margin|serve:--memory.forecast_margin|serve:--memory.alarm|serve:--memory.budget|serve:--memory.per_request|serve:--memory.settle|serve:--plan.expect|serve:--llama.ctx_size|serve:--llama.parallel|serve:--llama.batch_size|serve:--llama.ubatch_size|serve:--llama.threads|serve:--llama.n_gpu_layers|serve:--llama.tensor_split|serve:--llama.main_gpu|serve:--llama.cache_type_k|serve:--llama.cache_type_v|serve:--llama.template|serve:--llama.system_default|serve:--llama.alias) return ;; # a value that only its author knows
    status:--wait) return ;; # a value that only its author knows
    top:--interval|top:--wait) return ;; # a value that only its author knows
    logs:--worker|logs:--tail|logs:--since|logs:--wait) return ;; # a value that only its author knows
    events:--since|events:--service|events:--event|events:--wait) return ;; # a value that only its author knows
    restart:--worker|restart:--wait) return ;; # a value that only its author knows
    reload:--wait) return ;; # a value that only its author knows
    drain:--timeout|drain:--wait) return ;; # a value that only its author knows
    upgrade:--timeout|upgrade:--wait) return ;; # a value that only its author knows
    enforce:--wait) return ;; # a value that only its author knows
    sample:--content-type|sample:--remove|sample:--wait) return ;; # a value that only its author knows
    doctor:--port|doctor:-p|doctor:--host|doctor:--timeout|doctor:--max-concurrency|doctor:--name|doctor:--worker-port|doctor:--api-key|doctor:--ssl-keyfile-password|doctor:--listen|doctor:--admin|doctor:--user|doctor:--group|doctor:--workers.user|doctor:--replicas|doctor:--failed_exit|doctor:--drain_delay|doctor:--drain_timeout|doctor:--limits.connections|doctor:--limits.buffered|doctor:--limits.request_line|doctor:--limits.head|doctor:--limits.headers|doctor:--http.head_timeout|doctor:--http.idle_timeout|doctor:--http.write_timeout|doctor:--http.body_min_rate|doctor:--reload.debounce|doctor:--upgrade.drain|doctor:--main.hang_after|doctor:--logs.access_skip|doctor:--logs.tail|doctor:--metrics.refresh|doctor:--metrics.stale_after|doctor:--metrics.max_series|doctor:--record.path|doctor:--record.max_bytes|doctor:--record.max_age|doctor:--device.sample|doctor:--run|doctor:--command|doctor:--url|doctor:--engine_args|doctor:--args|doctor:--env|doctor:--pid|doctor:--route.path|doctor:--route.host|doctor:--route.models|doctor:--compat|doctor:--cors.allow_origins|doctor:--cors.allow_origin_regex|doctor:--cors.allow_methods|doctor:--cors.allow_headers|doctor:--cors.expose_headers|doctor:--cors.max_age|doctor:--metrics.namespace|doctor:--workers|doctor:--threads|doctor:--gpus|doctor:--gpus_per_worker|doctor:--oom_score_adj|doctor:--start_timeout|doctor:--stop_timeout|doctor:--backoff.initial|doctor:--backoff.max|doctor:--backoff.attempts|doctor:--probe.ready_path|doctor:--probe.live_path|doctor:--probe.interval|doctor:--probe.timeout|doctor:--liveness.silent_after|doctor:--warmup.requests|doctor:--warmup.max|doctor:--warmup.max_time|doctor:--canary.interval|doctor:--canary.timeout|doctor:--zygote.preload|doctor:--zygote.max_age|doctor:--zygote.after|doctor:--read_ahead.files|doctor:--replace.when|doctor:--replace.hold|doctor:--replace.drain|doctor:--replace.max_requests|doctor:--replace.max_requests_jitter|doctor:--replace.max_per_hour|doctor:--replace.host_rss|doctor:--replace.zombies|doctor:--empty_cache.reserved_over|doctor:--empty_cache.every_requests|doctor:--empty_cache.min_interval|doctor:--traffic.timeout|doctor:--traffic.stall|doctor:--traffic.max_stream|doctor:--traffic.max_concurrency|doctor:--traffic.queue.max_requests|doctor:--traffic.queue.max_wait|doctor:--traffic.contended_status|doctor:--limits.body|doctor:--limits.replay|doctor:--limits.input_tokens|doctor:--limits.output_tokens|doctor:--limits.image_pixels|doctor:--limits.array_items|doctor:--limits.json_depth|doctor:--memory.margin|doctor:--memory.forecast_margin|doctor:--memory.alarm|doctor:--memory.budget|doctor:--memory.per_request|doctor:--memory.settle|doctor:--plan.expect|doctor:--llama.ctx_size|doctor:--llama.parallel|doctor:--llama.batch_size|doctor:--llama.ubatch_size|doctor:--llama.threads|doctor:--llama.n_gpu_layers|doctor:--llama.tensor_split|doctor:--llama.main_gpu|doctor:--llama.cache_type_k|doctor:--llama.cache_type_v|doctor:--llama.template|doctor:--llama.system_default|doctor:--llama.alias) return ;; # a value that only its author knows
    explain:--worker|explain:--deadline|explain:--again|explain:--wait) return ;; # a value that only its author knows
    report:--since|report:--until|report:--service|report:--wait) return ;; # a value that only its author knows
    snapshot:--device|snapshot:--top|snapshot:--conf|snapshot:--capacity|snapshot:--other|snapshot:--fraction|snapshot:--torch) return ;; # a value that only its author knows
    check:--gpu|check:--route|check:--port|check:-p|check:--host|check:--timeout|check:--max-concurrency|check:--name|check:--worker-port|check:--api-key|check:--ssl-keyfile-password|check:--listen|check:--admin|check:--user|check:--group|check:--workers.user|check:--replicas|check:--failed_exit|check:--drain_delay|check:--drain_timeout|check:--limits.connections|check:--limits.buffered|check:--limits.request_line|check:--limits.head|check:--limits.headers|check:--http.head_timeout|check:--http.idle_timeout|check:--http.write_timeout|check:--http.body_min_rate|check:--reload.debounce|check:--upgrade.drain|check:--main.hang_after|check:--logs.access_skip|check:--logs.tail|check:--metrics.refresh|check:--metrics.stale_after|check:--metrics.max_series|check:--record.path|check:--record.max_bytes|check:--record.max_age|check:--device.sample|check:--run|check:--command|check:--url|check:--engine_args|check:--args|check:--env|check:--pid|check:--route.path|check:--route.host|check:--route.models|check:--compat|check:--cors.allow_origins|check:--cors.allow_origin_regex|check:--cors.allow_methods|check:--cors.allow_headers|check:--cors.expose_headers|check:--cors.max_age|check:--metrics.namespace|check:--workers|check:--threads|check:--gpus|check:--gpus_per_worker|check:--oom_score_adj|check:--start_timeout|check:--stop_timeout|check:--backoff.initial|check:--backoff.max|check:--backoff.attempts|check:--probe.ready_path|check:--probe.live_path|check:--probe.interval|check:--probe.timeout|check:--liveness.silent_after|check:--warmup.requests|check:--warmup.max|check:--warmup.max_time|check:--canary.interval|check:--canary.timeout|check:--zygote.preload|check:--zygote.max_age|check:--zygote.after|check:--read_ahead.files|check:--replace.when|check:--replace.hold|check:--replace.drain|check:--replace.max_requests|check:--replace.max_requests_jitter|check:--replace.max_per_hour|check:--replace.host_rss|check:--replace.zombies|check:--empty_cache.reserved_over|check:--empty_cache.every_requests|check:--empty_cache.min_interval|check:--traffic.timeout|check:--traffic.stall|check:--traffic.max_stream|check:--traffic.max_concurrency|check:--traffic.queue.max_requests|check:--traffic.queue.max_wait|check:--traffic.contended_status|check:--limits.body|check:--limits.replay|check:--limits.input_tokens|check:--limits.output_tokens|check:--limits.image_pixels|check:--limits.array_items|check:--limits.json_depth|check:--memory.margin|check:--memory.forecast_margin|check:--memory.alarm|check:--memory.budget|check:--memory.per_request|check:--memory.settle|check:--plan.expect|check:--llama.ctx_size|check:--llama.parallel|check:--llama.batch_size|check:--llama.ubatch_size|check:--llama.threads|check:--llama.n_gpu_layers|check:--llama.tensor_split|check:--llama.main_gpu|check:--llama.cache_type_k|check:--llama.cache_type_v|check:--llama.template|check:--llama.system_default|check:--llama.alias) return ;; # a value that only its author knows
    lint:--select|lint:--ignore) return ;; # a value that only its author knows
    soak:--scenario|soak:--requests|soak:--max-time|soak:--concurrency|soak:--rate|soak:--route|soak:--pid|soak:--metrics|soak:--drydock|soak:--with|soak:--port|soak:-p|soak:--host|soak:--timeout|soak:--max-concurrency|soak:--name|soak:--worker-port|soak:--api-key|soak:--ssl-keyfile-password|soak:--wait|soak:--listen|soak:--user|soak:--group|soak:--workers.user|soak:--replicas|soak:--failed_exit|soak:--drain_delay|soak:--drain_timeout|soak:--limits.connections|soak:--limits.buffered|soak:--limits.request_line|soak:--limits.head|soak:--limits.headers|soak:--http.head_timeout|soak:--http.idle_timeout|soak:--http.write_timeout|soak:--http.body_min_rate|soak:--reload.debounce|soak:--upgrade.drain|soak:--main.hang_after|soak:--logs.access_skip|soak:--logs.tail|soak:--metrics.refresh|soak:--metrics.stale_after|soak:--metrics.max_series|soak:--record.path|soak:--record.max_bytes|soak:--record.max_age|soak:--device.sample|soak:--run|soak:--command|soak:--url|soak:--engine_args|soak:--args|soak:--env|soak:--route.path|soak:--route.host|soak:--route.models|soak:--compat|soak:--cors.allow_origins|soak:--cors.allow_origin_regex|soak:--cors.allow_methods|soak:--cors.allow_headers|soak:--cors.expose_headers|soak:--cors.max_age|soak:--metrics.namespace|soak:--workers|soak:--threads|soak:--gpus|soak:--gpus_per_worker|soak:--oom_score_adj|soak:--start_timeout|soak:--stop_timeout|soak:--backoff.initial|soak:--backoff.max|soak:--backoff.attempts|soak:--probe.ready_path|soak:--probe.live_path|soak:--probe.interval|soak:--probe.timeout|soak:--liveness.silent_after|soak:--warmup.requests|soak:--warmup.max|soak:--warmup.max_time|soak:--canary.interval|soak:--canary.timeout|soak:--zygote.preload|soak:--zygote.max_age|soak:--zygote.after|soak:--read_ahead.files|soak:--replace.when|soak:--replace.hold|soak:--replace.drain|soak:--replace.max_requests|soak:--replace.max_requests_jitter|soak:--replace.max_per_hour|soak:--replace.host_rss|soak:--replace.zombies|soak:--empty_cache.reserved_over|soak:--empty_cache.every_requests|soak:--empty_cache.min_interval|soak:--traffic.timeout|soak:--traffic.stall|soak:--traffic.max_stream|soak:--traffic.max_concurrency|soak:--traffic.queue.max_requests|soak:--traffic.queue.max_wait|soak:--traffic.contended_status|soak:--limits.body|soak:--limits.replay|soak:--limits.input_tokens|soak:--limits.output_tokens|soak:--limits.image_pixels|soak:--limits.array_items|soak:--limits.json_depth|soak:--memory.margin|soak:--memory.forecast_margin|soak:--memory.alarm|soak:--memory.budget|soak:--memory.per_request|soak:--memory.settle|soak:--plan.expect|soak:--llama.ctx_size|soak:--llama.parallel|soak:--llama.batch_size|soak:--llama.ubatch_size|soak:--llama.threads|soak:--llama.n_gpu_layers|soak:--llama.tensor_split|soak:--llama.main_gpu|soak:--llama.cache_type_k|soak:--llama.cache_type_v|soak:--llama.template|soak:--llama.system_default|soak:--llama.alias) return ;; # a value that only its author knows
    drydock:--gpu|drydock:--count|drydock:--context|drydock:--workspace|drydock:--lag|drydock:--fail|drydock:--cap|drydock:--fault) return ;; # a value that only its author knows
    plan:--gpu|plan:--max-len|plan:--expect|plan:--concurrency|plan:--engine|plan:--kv|plan:--tp|plan:--pp|plan:--dp|plan:--utilization|plan:--batched-tokens|plan:--flags|plan:--total-gib) return ;; # a value that only its author knows
    manifest:--replicas|manifest:--front|manifest:--scaler|manifest:--runtime-class|manifest:--gpu-resource|manifest:--claim|manifest:--prewarm|manifest:--kube) return ;; # a value that only its author knows
    config:--service|config:--port|config:-p|config:--host|config:--timeout|config:--max-concurrency|config:--name|config:--worker-port|config:--api-key|config:--ssl-keyfile-password|config:--listen|config:--admin|config:--user|config:--group|config:--workers.user|config:--replicas|config:--failed_exit|config:--drain_delay|config:--drain_timeout|config:--limits.connections|config:--limits.buffered|config:--limits.request_line|config:--limits.head|config:--limits.headers|config:--http.head_timeout|config:--http.idle_timeout|config:--http.write_timeout|config:--http.body_min_rate|config:--reload.debounce|config:--upgrade.drain|config:--main.hang_after|config:--logs.access_skip|config:--logs.tail|config:--metrics.refresh|config:--metrics.stale_after|config:--metrics.max_series|config:--record.path|config:--record.max_bytes|config:--record.max_age|config:--device.sample|config:--run|config:--command|config:--url|config:--engine_args|config:--args|config:--env|config:--pid|config:--route.path|config:--route.host|config:--route.models|config:--compat|config:--cors.allow_origins|config:--cors.allow_origin_regex|config:--cors.allow_methods|config:--cors.allow_headers|config:--cors.expose_headers|config:--cors.max_age|config:--metrics.namespace|config:--workers|config:--threads|config:--gpus|config:--gpus_per_worker|config:--oom_score_adj|config:--start_timeout|config:--stop_timeout|config:--backoff.initial|config:--backoff.max|config:--backoff.attempts|config:--probe.ready_path|config:--probe.live_path|config:--probe.interval|config:--probe.timeout|config:--liveness.silent_after|config:--warmup.requests|config:--warmup.max|config:--warmup.max_time|config:--canary.interval|config:--canary.timeout|config:--zygote.preload|config:--zygote.max_age|config:--zygote.after|config:--read_ahead.files|config:--replace.when|config:--replace.hold|config:--replace.drain|config:--replace.max_requests|config:--replace.max_requests_jitter|config:--replace.max_per_hour|config:--replace.host_rss|config:--replace.zombies|config:--empty_cache.reserved_over|config:--empty_cache.every_requests|config:--empty_cache.min_interval|config:--traffic.timeout|config:--traffic.stall|config:--traffic.max_stream|config:--traffic.max_concurrency|config:--traffic.queue.max_requests|config:--traffic.queue.max_wait|config:--traffic.contended_status|config:--limits.body|config:--limits.replay|config:--limits.input_tokens|config:--limits.output_tokens|config:--limits.image_pixels|config:--limits.array_items|config:--limits.json_depth|config:--memory.margin|config:--memory.forecast_margin|config:--memory.alarm|config:--memory.budget|config:--memory.per_request|config:--memory.settle|config:--plan.expect|config:--llama.ctx_size|config:--llama.parallel|config:--llama.batch_size|config:--llama.ubatch_size|config:--llama.threads|config:--llama.n_gpu_layers|config:--llama.tensor_split|config:--llama.main_gpu|config:--llama.cache_type_k|config:--llama.cache_type_v|config:--llama.template|config:--llama.system_default|config:--llama.alias) return ;; # a value that only its author knows
    esac
    case $verb in
    '') words="serve status top logs events restart reload drain upgrade enforce sample doctor explain report snapshot check lint soak drydock plan manifest config help hold --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    serve) words="--port -p --host --timeout --max-concurrency --name --worker-port --check --allow-drydock --reload --api-key --ssl-certfile --ssl-keyfile --ssl-keyfile-password --ssl-ca-certs --json --help -h --version -V --quiet -q --verbose -v --color --config -c --listen --admin --run_dir --state_dir --cache_dir --user --group --workers.user --replicas --failed_exit --drain_delay --drain_timeout --admin_token --api_keys.file --tls.certfile --tls.keyfile --tls.keyfile_password --tls.ca_certs --tls.cert_reqs --tls.min_version --limits.connections --limits.buffered --limits.request_line --limits.head --limits.headers --http.head_timeout --http.idle_timeout --http.write_timeout --http.body_min_rate --http.forwarded --reload.watch --reload.debounce --upgrade.drain --main.hang_after --main.fence --logs.workers --logs.format --logs.level --logs.access --logs.access_skip --logs.tail --metrics.refresh --metrics.stale_after --metrics.max_series --record.path --record.max_bytes --record.max_age --device.sample --run --command --model --url --engine --engine_args --python --working_dir --args --env --offline --dependencies --pid --mode --required --route.path --route.host --route.models --route.strip --compat --cors.enabled --cors.allow_origins --cors.allow_origin_regex --cors.allow_methods --cors.allow_headers --cors.allow_credentials --cors.expose_headers --cors.max_age --metrics.namespace --workers --threads --gpus --gpus_per_worker --oom_score_adj --start_timeout --stop_timeout --backoff.initial --backoff.max --backoff.attempts --probe.ready_path --probe.live_path --probe.interval --probe.timeout --liveness.silent_after --warmup.requests --warmup.samples --warmup.examples --warmup.until_flat --warmup.max --warmup.max_time --canary.interval --canary.timeout --zygote.use --zygote.preload --zygote.max_age --zygote.after --read_ahead.use --read_ahead.files --fast_lane --explain --explain_code --watch --replace.when --replace.mode --replace.hold --replace.drain --replace.max_requests --replace.max_requests_jitter --replace.max_per_hour --replace.host_rss --replace.ready_while_held --replace.zombies --empty_cache.reserved_over --empty_cache.every_requests --empty_cache.min_interval --traffic.timeout --traffic.stall --traffic.max_stream --traffic.max_concurrency --traffic.queue.max_requests --traffic.queue.max_wait --traffic.fairness --traffic.contended_status --traffic.idempotent --limits.body --limits.replay --limits.input_tokens --limits.output_tokens --limits.image_pixels --limits.array_items --limits.json_depth --openai.over_limit --openai.usage --memory.margin --memory.forecast_margin --memory.alarm --memory.budget --memory.per_request --memory.charge --memory.sync --memory.settle --plan.expect --llama.ctx_size --llama.parallel --llama.batch_size --llama.ubatch_size --llama.threads --llama.n_gpu_layers --llama.split_mode --llama.tensor_split --llama.main_gpu --llama.cache_type_k --llama.cache_type_v --llama.flash_attn --llama.swa_full --llama.template --llama.system_default --llama.embeddings --llama.admission --llama.prefix_sharing --llama.alias" ;;
    status) words="--watch -w --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    top) words="--once --interval --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    logs) words="--follow -f --previous -p --worker --tail --since --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    events) words="--follow -f --since --service --event --level --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    restart) words="--all --worker --mode --now --no-wait --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    reload) words="--check --no-wait --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    drain) words="--timeout --undo --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    upgrade) words="--timeout --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    enforce) words="observe guard enforce --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    sample) words="--from-next --file --content-type --canary --list --remove --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    doctor) words="--port -p --host --timeout --max-concurrency --name --worker-port --check --allow-drydock --reload --api-key --ssl-certfile --ssl-keyfile --ssl-keyfile-password --ssl-ca-certs --json --help -h --version -V --quiet -q --verbose -v --color --config -c --listen --admin --run_dir --state_dir --cache_dir --user --group --workers.user --replicas --failed_exit --drain_delay --drain_timeout --admin_token --api_keys.file --tls.certfile --tls.keyfile --tls.keyfile_password --tls.ca_certs --tls.cert_reqs --tls.min_version --limits.connections --limits.buffered --limits.request_line --limits.head --limits.headers --http.head_timeout --http.idle_timeout --http.write_timeout --http.body_min_rate --http.forwarded --reload.watch --reload.debounce --upgrade.drain --main.hang_after --main.fence --logs.workers --logs.format --logs.level --logs.access --logs.access_skip --logs.tail --metrics.refresh --metrics.stale_after --metrics.max_series --record.path --record.max_bytes --record.max_age --device.sample --run --command --model --url --engine --engine_args --python --working_dir --args --env --offline --dependencies --pid --mode --required --route.path --route.host --route.models --route.strip --compat --cors.enabled --cors.allow_origins --cors.allow_origin_regex --cors.allow_methods --cors.allow_headers --cors.allow_credentials --cors.expose_headers --cors.max_age --metrics.namespace --workers --threads --gpus --gpus_per_worker --oom_score_adj --start_timeout --stop_timeout --backoff.initial --backoff.max --backoff.attempts --probe.ready_path --probe.live_path --probe.interval --probe.timeout --liveness.silent_after --warmup.requests --warmup.samples --warmup.examples --warmup.until_flat --warmup.max --warmup.max_time --canary.interval --canary.timeout --zygote.use --zygote.preload --zygote.max_age --zygote.after --read_ahead.use --read_ahead.files --fast_lane --explain --explain_code --watch --replace.when --replace.mode --replace.hold --replace.drain --replace.max_requests --replace.max_requests_jitter --replace.max_per_hour --replace.host_rss --replace.ready_while_held --replace.zombies --empty_cache.reserved_over --empty_cache.every_requests --empty_cache.min_interval --traffic.timeout --traffic.stall --traffic.max_stream --traffic.max_concurrency --traffic.queue.max_requests --traffic.queue.max_wait --traffic.fairness --traffic.contended_status --traffic.idempotent --limits.body --limits.replay --limits.input_tokens --limits.output_tokens --limits.image_pixels --limits.array_items --limits.json_depth --openai.over_limit --openai.usage --memory.margin --memory.forecast_margin --memory.alarm --memory.budget --memory.per_request --memory.charge --memory.sync --memory.settle --plan.expect --llama.ctx_size --llama.parallel --llama.batch_size --llama.ubatch_size --llama.threads --llama.n_gpu_layers --llama.split_mode --llama.tensor_split --llama.main_gpu --llama.cache_type_k --llama.cache_type_v --llama.flash_attn --llama.swa_full --llama.template --llama.system_default --llama.embeddings --llama.admission --llama.prefix_sharing --llama.alias" ;;
    explain) words="--worker --mode --deadline --force --again --history --snapshot --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    report) words="--last --since --until --service --would --html --record --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    snapshot) words="replay what-if --since --device --top --html --folded --sqlite --conf --no-bisect --capacity --other --fraction --log --torch --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    check) words="--gpu --quick --route --body --failing --junit --html --port -p --host --timeout --max-concurrency --name --worker-port --check --allow-drydock --reload --api-key --ssl-certfile --ssl-keyfile --ssl-keyfile-password --ssl-ca-certs --json --help -h --version -V --quiet -q --verbose -v --color --config -c --listen --admin --run_dir --state_dir --cache_dir --user --group --workers.user --replicas --failed_exit --drain_delay --drain_timeout --admin_token --api_keys.file --tls.certfile --tls.keyfile --tls.keyfile_password --tls.ca_certs --tls.cert_reqs --tls.min_version --limits.connections --limits.buffered --limits.request_line --limits.head --limits.headers --http.head_timeout --http.idle_timeout --http.write_timeout --http.body_min_rate --http.forwarded --reload.watch --reload.debounce --upgrade.drain --main.hang_after --main.fence --logs.workers --logs.format --logs.level --logs.access --logs.access_skip --logs.tail --metrics.refresh --metrics.stale_after --metrics.max_series --record.path --record.max_bytes --record.max_age --device.sample --run --command --model --url --engine --engine_args --python --working_dir --args --env --offline --dependencies --pid --mode --required --route.path --route.host --route.models --route.strip --compat --cors.enabled --cors.allow_origins --cors.allow_origin_regex --cors.allow_methods --cors.allow_headers --cors.allow_credentials --cors.expose_headers --cors.max_age --metrics.namespace --workers --threads --gpus --gpus_per_worker --oom_score_adj --start_timeout --stop_timeout --backoff.initial --backoff.max --backoff.attempts --probe.ready_path --probe.live_path --probe.interval --probe.timeout --liveness.silent_after --warmup.requests --warmup.samples --warmup.examples --warmup.until_flat --warmup.max --warmup.max_time --canary.interval --canary.timeout --zygote.use --zygote.preload --zygote.max_age --zygote.after --read_ahead.use --read_ahead.files --fast_lane --explain --explain_code --watch --replace.when --replace.mode --replace.hold --replace.drain --replace.max_requests --replace.max_requests_jitter --replace.max_per_hour --replace.host_rss --replace.ready_while_held --replace.zombies --empty_cache.reserved_over --empty_cache.every_requests --empty_cache.min_interval --traffic.timeout --traffic.stall --traffic.max_stream --traffic.max_concurrency --traffic.queue.max_requests --traffic.queue.max_wait --traffic.fairness --traffic.contended_status --traffic.idempotent --limits.body --limits.replay --limits.input_tokens --limits.output_tokens --limits.image_pixels --limits.array_items --limits.json_depth --openai.over_limit --openai.usage --memory.margin --memory.forecast_margin --memory.alarm --memory.budget --memory.per_request --memory.charge --memory.sync --memory.settle --plan.expect --llama.ctx_size --llama.parallel --llama.batch_size --llama.ubatch_size --llama.threads --llama.n_gpu_layers --llama.split_mode --llama.tensor_split --llama.main_gpu --llama.cache_type_k --llama.cache_type_v --llama.flash_attn --llama.swa_full --llama.template --llama.system_default --llama.embeddings --llama.admission --llama.prefix_sharing --llama.alias" ;;
    lint) words="--select --ignore --strict --rules --stdin-name --python --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    soak) words="--scenario --requests --max-time --concurrency --rate --route --body --failing --pid --metrics --host --drydock --compare --with --tune --junit --html --port -p --host --timeout --max-concurrency --name --worker-port --check --allow-drydock --reload --api-key --ssl-certfile --ssl-keyfile --ssl-keyfile-password --ssl-ca-certs --admin --token-file --wait --json --help -h --version -V --quiet -q --verbose -v --color --config -c --listen --run_dir --state_dir --cache_dir --user --group --workers.user --replicas --failed_exit --drain_delay --drain_timeout --admin_token --api_keys.file --tls.certfile --tls.keyfile --tls.keyfile_password --tls.ca_certs --tls.cert_reqs --tls.min_version --limits.connections --limits.buffered --limits.request_line --limits.head --limits.headers --http.head_timeout --http.idle_timeout --http.write_timeout --http.body_min_rate --http.forwarded --reload.watch --reload.debounce --upgrade.drain --main.hang_after --main.fence --logs.workers --logs.format --logs.level --logs.access --logs.access_skip --logs.tail --metrics.refresh --metrics.stale_after --metrics.max_series --record.path --record.max_bytes --record.max_age --device.sample --run --command --model --url --engine --engine_args --python --working_dir --args --env --offline --dependencies --mode --required --route.path --route.host --route.models --route.strip --compat --cors.enabled --cors.allow_origins --cors.allow_origin_regex --cors.allow_methods --cors.allow_headers --cors.allow_credentials --cors.expose_headers --cors.max_age --metrics.namespace --workers --threads --gpus --gpus_per_worker --oom_score_adj --start_timeout --stop_timeout --backoff.initial --backoff.max --backoff.attempts --probe.ready_path --probe.live_path --probe.interval --probe.timeout --liveness.silent_after --warmup.requests --warmup.samples --warmup.examples --warmup.until_flat --warmup.max --warmup.max_time --canary.interval --canary.timeout --zygote.use --zygote.preload --zygote.max_age --zygote.after --read_ahead.use --read_ahead.files --fast_lane --explain --explain_code --watch --replace.when --replace.mode --replace.hold --replace.drain --replace.max_requests --replace.max_requests_jitter --replace.max_per_hour --replace.host_rss --replace.ready_while_held --replace.zombies --empty_cache.reserved_over --empty_cache.every_requests --empty_cache.min_interval --traffic.timeout --traffic.stall --traffic.max_stream --traffic.max_concurrency --traffic.queue.max_requests --traffic.queue.max_wait --traffic.fairness --traffic.contended_status --traffic.idempotent --limits.body --limits.replay --limits.input_tokens --limits.output_tokens --limits.image_pixels --limits.array_items --limits.json_depth --openai.over_limit --openai.usage --memory.margin --memory.forecast_margin --memory.alarm --memory.budget --memory.per_request --memory.charge --memory.sync --memory.settle --plan.expect --llama.ctx_size --llama.parallel --llama.batch_size --llama.ubatch_size --llama.threads --llama.n_gpu_layers --llama.split_mode --llama.tensor_split --llama.main_gpu --llama.cache_type_k --llama.cache_type_v --llama.flash_attn --llama.swa_full --llama.template --llama.system_default --llama.embeddings --llama.admission --llama.prefix_sharing --llama.alias" ;;
    drydock) words="--gpu --count --context --report --record --values --workspace --lag --fail --cap --fault --trace --list --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    plan) words="--gpu --max-len --expect --concurrency --engine --kv --tp --pp --dp --utilization --batched-tokens --eager --strategies --record --explain --flags --yaml --k8s --total-gib --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    manifest) words="--check --measured --from --out --single --replicas --spare-gpu --front --scaler --mode --runtime-class --gpu-resource --claim --prewarm --kube --qos --no-operator --image --bento --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    config) words="show schema reference --service --port -p --host --timeout --max-concurrency --name --worker-port --check --allow-drydock --reload --api-key --ssl-certfile --ssl-keyfile --ssl-keyfile-password --ssl-ca-certs --json --help -h --version -V --quiet -q --verbose -v --color --config -c --listen --admin --run_dir --state_dir --cache_dir --user --group --workers.user --replicas --failed_exit --drain_delay --drain_timeout --admin_token --api_keys.file --tls.certfile --tls.keyfile --tls.keyfile_password --tls.ca_certs --tls.cert_reqs --tls.min_version --limits.connections --limits.buffered --limits.request_line --limits.head --limits.headers --http.head_timeout --http.idle_timeout --http.write_timeout --http.body_min_rate --http.forwarded --reload.watch --reload.debounce --upgrade.drain --main.hang_after --main.fence --logs.workers --logs.format --logs.level --logs.access --logs.access_skip --logs.tail --metrics.refresh --metrics.stale_after --metrics.max_series --record.path --record.max_bytes --record.max_age --device.sample --run --command --model --url --engine --engine_args --python --working_dir --args --env --offline --dependencies --pid --mode --required --route.path --route.host --route.models --route.strip --compat --cors.enabled --cors.allow_origins --cors.allow_origin_regex --cors.allow_methods --cors.allow_headers --cors.allow_credentials --cors.expose_headers --cors.max_age --metrics.namespace --workers --threads --gpus --gpus_per_worker --oom_score_adj --start_timeout --stop_timeout --backoff.initial --backoff.max --backoff.attempts --probe.ready_path --probe.live_path --probe.interval --probe.timeout --liveness.silent_after --warmup.requests --warmup.samples --warmup.examples --warmup.until_flat --warmup.max --warmup.max_time --canary.interval --canary.timeout --zygote.use --zygote.preload --zygote.max_age --zygote.after --read_ahead.use --read_ahead.files --fast_lane --explain --explain_code --watch --replace.when --replace.mode --replace.hold --replace.drain --replace.max_requests --replace.max_requests_jitter --replace.max_per_hour --replace.host_rss --replace.ready_while_held --replace.zombies --empty_cache.reserved_over --empty_cache.every_requests --empty_cache.min_interval --traffic.timeout --traffic.stall --traffic.max_stream --traffic.max_concurrency --traffic.queue.max_requests --traffic.queue.max_wait --traffic.fairness --traffic.contended_status --traffic.idempotent --limits.body --limits.replay --limits.input_tokens --limits.output_tokens --limits.image_pixels --limits.array_items --limits.json_depth --openai.over_limit --openai.usage --memory.margin --memory.forecast_margin --memory.alarm --memory.budget --memory.per_request --memory.charge --memory.sync --memory.settle --plan.expect --llama.ctx_size --llama.parallel --llama.batch_size --llama.ubatch_size --llama.threads --llama.n_gpu_layers --llama.split_mode --llama.tensor_split --llama.main_gpu --llama.cache_type_k --llama.cache_type_v --llama.flash_attn --llama.swa_full --llama.template --llama.system_default --llama.embeddings --llama.admission --llama.prefix_sharing --llama.alias" ;;
    help) words="serve status top logs events restart reload drain upgrade enforce sample doctor explain report snapshot check lint soak drydock plan manifest config help hold --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    hold) words="--once --json --help -h --version -V --quiet -q --verbose -v --color --config -c" ;;
    esac
    if [[ $cur == -* || -z $verb ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else COMPREPLY=($(compgen -W "${words%% -*}" -f -- "$cur")); fi
}
complete -o filenames -F _plimsoll plimsoll
