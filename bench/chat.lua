-- wrk: one chat request, about 330 bytes; the path says how many bytes come back
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"model":"Qwen/Qwen2.5-7B-Instruct","messages":[{"role":"system","content":"You are a helpful assistant."},'
  .. '{"role":"user","content":"Explain in two sentences why a GPU inference server runs out of memory when long '
  .. 'prompts arrive together, please."}],"max_tokens":256,"temperature":0.7,"stream":false}'
