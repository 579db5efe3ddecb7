-- wrk: the endpoint of bench/service
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"x":21}'
