-- wrk: one completion request, for routers that know the routes of OpenAI's API alone
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"model":"Qwen/Qwen2.5-7B-Instruct","prompt":"Explain in two sentences why a GPU inference server runs out of '
  .. 'memory when long prompts arrive together, and what its operator would have to know beforehand to be certain that '
  .. 'it does not.","max_tokens":256,"temperature":0.7,"stream":false}'
