-- What HAProxy runs for each request of `gantree route`: finds the service, chooses the replica, refuses what is too
-- much. Environment: GANTREE_ROUTE_TABLE, a file with the table at the start; GANTREE_ROUTE_AT, the place of callers that
-- do not say theirs; GANTREE_ROUTE_CACHE, the socket of cache_events/lookup_socket.py, and
-- GANTREE_ROUTE_CACHE_WAIT_S, how long an answer of it may take.
--
-- The table comes in lines, from that file and over the runtime socket (`gantree LINE`). Words are percent-encoded:
--     service BACKEND NAME QUEUE WAIT_MS AFFINITY CONCURRENCY [MODEL...]
--     replica BACKEND SERVER HASH SPEED READY DRAINING [DOMAIN...]       READY, DRAINING: 1 or 0
--     forget BACKEND SERVER
--     node NAME [DOMAIN...]
--     known                                                               this is a table, also if it has no service
--     stopping                                                            another process knows better: send it all
-- How many requests a replica works on is asked of HAProxy itself, which runs on one thread: between a choice and its
-- effect nothing else happens.

local choice = require("choice")
local prefixes = require("prefixes")

local TABLE_FILE, DEFAULT_PLACE = os.getenv("GANTREE_ROUTE_TABLE"), os.getenv("GANTREE_ROUTE_AT")
local CACHE_SOCKET, CACHE_WAIT_S = os.getenv("GANTREE_ROUTE_CACHE"), tonumber(os.getenv("GANTREE_ROUTE_CACHE_WAIT_S"))

local SHARE_OF_QUEUE = {high = 1.0, normal = 0.75, low = 0.5}
local RANK = {low = 1, normal = 2, high = 3}
local CLASS = {high = -1, normal = 0, low = 1} -- HAProxy's queue serves the lowest first
local NO_TABLE = "the router does not know the services yet, as it does not reach the daemon; try again later"
local NEXT = "_next" -- the backend that stands for the process that has taken over
local POLL_MS = 25
local GONE_S = 1.0 -- a request that waits and has not polled for so long is not there any more
local RETRY_SHARE, RETRY_FREE = 0.2, 10 -- retries over requests of the last seconds; so many are always allowed
local KEPT = 0.9 -- of the counts of retries and requests, a second later

local services = {} -- by backend
local backend_of_name, backend_of_model = {}, {}
local nodes = {}
local is_known, is_stopping = false, false

---------- the table

local function decoded(word)
    return (word:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function rest_of(words, first)
    local rest = {}
    for index = first, #words do rest[#rest + 1] = words[index] end
    return rest
end

local function set_models(backend, models)
    for model, owner in pairs(backend_of_model) do
        if owner == backend then backend_of_model[model] = nil end
    end
    for _, model in ipairs(models) do backend_of_model[model] = backend end
end

local function candidate_at(service, server)
    for index, each in ipairs(service.candidates) do
        if each.name == server then return index end
    end
    return #service.candidates + 1
end

local UPDATE = {}

function UPDATE.service(words)
    local backend = words[2]
    local service = services[backend]
        or {candidates = {}, known = prefixes.new(), polled = {}, waiting = 0, turn = 0, requests = 0, retries = 0, seen = {retries = 0, requests = 0}}
    service.queue, service.wait_ms = tonumber(words[4]), tonumber(words[5])
    service.affinity, service.concurrency = words[6], tonumber(words[7])
    services[backend] = service
    backend_of_name[words[3]] = backend
    set_models(backend, rest_of(words, 8))
end

function UPDATE.replica(words)
    local service = services[words[2]]
    service.candidates[candidate_at(service, words[3])] = {
        name = words[3],
        hash = tonumber(words[4]),
        speed = tonumber(words[5]),
        is_ready = words[6] == "1",
        draining = words[7] == "1",
        place = rest_of(words, 8),
    }
end

function UPDATE.forget(words)
    local candidates = services[words[2]].candidates
    local index = candidate_at(services[words[2]], words[3])
    if index <= #candidates then table.remove(candidates, index) end
end

function UPDATE.node(words)
    nodes[words[2]] = rest_of(words, 3)
end

function UPDATE.known()
    is_known = true
end

function UPDATE.stopping()
    is_stopping = true
end

local function update(words)
    for index, word in ipairs(words) do words[index] = decoded(word) end
    UPDATE[words[1]](words)
end

local function read_table(path)
    for line in io.lines(path) do
        local words = {}
        for word in line:gmatch("%S+") do words[#words + 1] = word end
        update(words)
    end
end

---------- the caller

local function place_of(name)
    if nodes[name] then return nodes[name] end
    local place, path = {}, nil
    for part in name:gmatch("[^/]+") do
        path = path and (path .. "/" .. part) or part
        place[#place + 1] = path
    end
    return place
end

local function caller_of(txn)
    local named = txn.sf:req_hdr("x-gantree-from")
    if named == "" then named = txn:get_var("txn.from") or DEFAULT_PLACE or "" end
    return place_of(named)
end

local function priority_of(txn)
    local named = txn.sf:req_hdr("x-gantree-priority"):lower()
    if not RANK[named] then named = "normal" end
    local most = txn:get_var("txn.most_priority")
    if most and RANK[most] and RANK[most] < RANK[named] then named = most end
    return named
end

---------- answers of the router itself

local ESCAPES = {['"'] = '\\"', ["\\"] = "\\\\"}

local function quoted(text)
    local escaped = text:gsub('[%c"\\]', function(char)
        return ESCAPES[char] or string.format("\\u%04x", char:byte())
    end)
    return '"' .. escaped .. '"'
end

local function answer(txn, status, body, headers)
    headers = headers or {}
    headers["content-type"] = {"application/json"}
    headers["cache-control"] = {"no-store"}
    txn:done(txn:reply({status = status, headers = headers, body = body}))
end

local function refuse(txn, status, code, message)
    txn:set_var("txn.reason", code)
    local headers = (status == 429 or status == 503) and {["retry-after"] = {"1"}} or {}
    local body = string.format(
        '{"error": {"message": %s, "type": "gantree_route", "code": %s}}\n', quoted(message), quoted(code)
    )
    answer(txn, status, body, headers)
end

local function model_object(model)
    return string.format('{"id": %s, "object": "model", "created": 0, "owned_by": "gantree"}', quoted(model))
end

local function answer_models(txn)
    local rows = {}
    for model in pairs(backend_of_model) do rows[#rows + 1] = model_object(model) end
    table.sort(rows)
    txn:set_var("txn.reason", "models")
    answer(txn, 200, '{"object": "list", "data": [' .. table.concat(rows, ", ") .. "]}\n")
end

---------- the service

local function by_path(txn, path)
    local name, rest = path:match("^/services/([^/]+)(.*)$")
    if not name then return nil end
    name = decoded(name)
    if not backend_of_name[name] then return nil, "there is no service " .. name end
    txn.http:req_set_path(rest == "" and "/" or rest)
    return backend_of_name[name]
end

local function by_model(txn, body)
    local model = txn.c:json_query(body, "$.model")
    if not model or model == "" then
        return nil, "the request names no model within the first part that the router reads;"
            .. " name the service in the header X-Gantree-Service or the path /services/NAME"
    end
    if not backend_of_model[model] then return nil, "no service has the model " .. model end
    return backend_of_model[model]
end

-- The backend, or nil and why there is none.
local function backend_for(txn, path, body)
    if path:sub(1, 10) == "/services/" then return by_path(txn, path) end
    local named = txn.sf:req_hdr("x-gantree-service")
    if named ~= "" then
        if backend_of_name[named] then return backend_of_name[named] end
        return nil, "there is no service " .. named
    end
    local host = txn.sf:req_hdr("host"):lower():gsub(":%d+$", "")
    local first = not host:match("^[%d.]+$") and host:match("^[^.]*") -- an address is no name with a domain
    local backend = backend_of_name[host] or backend_of_name[first]
    if backend then return backend end
    if path:sub(1, 4) == "/v1/" and body ~= "" then return by_model(txn, body) end
    return nil, "name the service: the model of an OpenAI request, the path /services/NAME, the header"
        .. " X-Gantree-Service, or its name as host"
end

---------- the choice

local function crc32_of(txn)
    return function(text) return txn.c:crc32(text) & 0xFFFFFFFF end
end

-- HAProxy 2.6 cuts the text of a server's path in two where it lies: each question gets a text of its own.
local function refresh(txn, service, backend)
    for _, each in ipairs(service.candidates) do
        each.ready = each.is_ready and txn.f:srv_is_up(backend .. "/" .. each.name) == 1
        each.in_flight = txn.f:srv_conn(backend .. "/" .. each.name)
        each.concurrency = service.concurrency
    end
    return service.candidates
end

local function session_of(txn, body)
    local session = txn.sf:req_hdr("x-gantree-session")
    if session == "" then session = txn.sf:req_cook("gantree-session") end
    if session == "" and body ~= "" then session = txn.c:json_query(body, "$.user") or "" end
    return session
end

local placed = {} -- number and server of prompts that were looked up and sent on: the next lookup says so

-- The tokens of a prompt that each replica holds, by server, and the number of the answer; none and nil where that is not
-- known, or not in time.
local function looked_up(service, backend, body)
    if service.affinity ~= "cache" or body == "" then return {} end
    local words = {backend, #body, table.unpack(placed)}
    placed = {}
    local socket = core.tcp()
    socket:settimeout(CACHE_WAIT_S)
    local line = socket:connect(CACHE_SOCKET)
        and socket:send(table.concat(words, " ") .. "\n" .. body)
        and socket:receive("*l")
    socket:close()
    local number, rest = (line or ""):match("^(%d+)(.*)$")
    local held = {}
    for server, tokens in (rest or ""):gmatch("(%S+) (%d+)") do held[server] = tonumber(tokens) end
    return held, number
end

-- Replicas that the request prefers, and the keys of its beginning. held: as of looked_up.
local function preferred_of(txn, service, caller, body, held)
    if service.affinity == "session" then
        local session = session_of(txn, body)
        if session == "" then return {}, {} end
        return choice.session_order(service.candidates, caller, crc32_of(txn)(session)), {}
    end
    if (service.affinity == "prefix" or service.affinity == "cache") and body ~= "" then
        local start = body:find('"messages"', 1, true) or body:find('"prompt"', 1, true) or 1
        local keys = prefixes.keys(body:sub(start), crc32_of(txn))
        if next(held) then
            return choice.cache_order(service.candidates, caller, held, service.turn & 0xFFFFFFFF), keys
        end
        return {prefixes.replica(service.known, keys)}, keys
    end
    return {}, {}
end

local function chosen(txn, service, backend, caller, body, held)
    local candidates = refresh(txn, service, backend)
    service.turn = service.turn + 1
    local preferred, keys = preferred_of(txn, service, caller, body, held)
    local server, reason = choice.choose(candidates, caller, preferred, service.turn & 0xFFFFFFFF)
    if server and #keys > 0 then prefixes.record(service.known, keys, server) end
    return server, reason
end

local function is_too_much(txn, service, backend, priority)
    local queued = txn.f:queue(backend) + service.waiting
    return queued >= service.queue * SHARE_OF_QUEUE[priority]
end

local function seconds()
    local now = core.now()
    return now.sec + now.usec / 1e6
end

-- service.polled has when each request that waits here polled last: HAProxy ends one whose client has gone without a
-- word to Lua, so those that have not polled for a while are let go (forget_gone).
local function note_poll(service, request)
    if not service.polled[request] then service.waiting = service.waiting + 1 end
    service.polled[request] = seconds()
end

local function forget_poll(service, request)
    if service.polled[request] then service.waiting = service.waiting - 1 end
    service.polled[request] = nil
end

local function forget_gone(service)
    local latest = seconds() - GONE_S
    for request, at in pairs(service.polled) do
        if at < latest then forget_poll(service, request) end
    end
end

-- Wait until some replica is ready, or another process knows better. Returns as `chosen`.
local function waited(txn, service, backend, caller, body, held)
    local request, server, reason = {}, nil, nil
    for _ = 1, math.ceil(service.wait_ms / POLL_MS) do
        note_poll(service, request)
        core.msleep(POLL_MS)
        if is_stopping then
            reason = "moved"
            break
        end
        server, reason = chosen(txn, service, backend, caller, body, held)
        if reason ~= "not-ready" then break end
    end
    forget_poll(service, request)
    return server, reason
end

local function choose(txn)
    if is_stopping then
        txn:set_var("txn.backend", NEXT)
        return
    end
    if not is_known then return refuse(txn, 503, "no_table", NO_TABLE) end
    local path = txn.sf:path()
    if path == "/v1/models" and txn.sf:method() == "GET" then return answer_models(txn) end
    local body = txn.sf:req_body()
    local backend, problem = backend_for(txn, path, body)
    if not backend then return refuse(txn, 404, "no_service", problem) end
    local service, caller, priority = services[backend], caller_of(txn), priority_of(txn)
    txn:set_var("txn.backend", backend)
    local held, number = looked_up(service, backend, body)
    local server, reason = chosen(txn, service, backend, caller, body, held)
    if not server and is_too_much(txn, service, backend, priority) then
        return refuse(txn, 503, "overloaded", "too many requests wait for this service; try again later")
    end
    if reason == "not-ready" then server, reason = waited(txn, service, backend, caller, body, held) end
    if reason == "moved" then
        txn.http:req_set_path(path) -- as it came: it names the service
        txn:set_var("txn.backend", NEXT)
        return
    end
    if reason == "not-ready" then
        return refuse(txn, 503, "not_ready", "no replica of this service is ready")
    end
    txn:set_priority_class(CLASS[priority])
    txn:set_var("txn.reason", reason)
    if server then txn:set_var("txn.server", server) end
    if server and number then placed[#placed + 1], placed[#placed + 2] = number, server end
    if service.no_retry then txn:set_var("txn.no_retry", true) end
end

---------- the budget of retries

local function count_retries(backend, service)
    local stats = core.backends[backend]:get_stats()
    local retries, requests = stats.wretr, stats.req_tot
    service.retries = service.retries * KEPT + retries - service.seen.retries
    service.requests = service.requests * KEPT + requests - service.seen.requests
    service.seen = {retries = retries, requests = requests}
    service.no_retry = service.retries > RETRY_SHARE * service.requests + RETRY_FREE
end

local function count_every_second()
    while true do
        core.msleep(1000)
        for backend, service in pairs(services) do
            count_retries(backend, service)
            forget_gone(service)
        end
    end
end

read_table(TABLE_FILE)
core.register_action("choose", {"http-req"}, choose)
core.register_task(count_every_second)
core.register_cli({"gantree-waiting"}, "gantree-waiting: requests that wait for a ready replica", function(applet)
    for backend, service in pairs(services) do applet:send(backend .. " " .. service.waiting .. "\n") end
    applet:send("\n")
end)
core.register_cli({"gantree"}, "gantree LINE: change the table of replicas", function(applet, _, ...)
    local done, problem = pcall(update, {...})
    applet:send(done and "\n" or ("error: " .. tostring(problem) .. "\n"))
end)
