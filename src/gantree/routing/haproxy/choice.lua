-- The rule of routing/choice.py for HAProxy, which has the essay. Both are held equal by tests/routing/test_twins.py.
-- A candidate is a table: name, hash (CRC-32 of the name), place (a list), ready, draining, in_flight, concurrency,
-- speed.

local choice = {}

local GAP, SLACK, WORD = 2.0, 4.0, 0xFFFFFFFF

function choice.mix(one, two)
    local mixed = (one + two * 0x9E3779B1) & WORD
    mixed = ((mixed ~ (mixed >> 16)) * 0x85EBCA6B) & WORD
    mixed = ((mixed ~ (mixed >> 13)) * 0xC2B2AE35) & WORD
    return mixed ~ (mixed >> 16)
end

function choice.closeness(place, other)
    local most = math.min(#place, #other)
    for depth = 1, most do
        if place[depth] ~= other[depth] then return depth - 1 end
    end
    return most
end

local function is_usable(candidate)
    return candidate.ready and not candidate.draining
end

local function load_of(candidate)
    return (candidate.in_flight + 1) / candidate.speed
end

-- Those with room, whether any is usable, and the load above which one is overloaded.
local function with_room(candidates)
    local roomy, any_usable, least = {}, false, math.huge
    for _, each in ipairs(candidates) do
        if is_usable(each) then
            any_usable = true
            if each.concurrency == 0 or each.in_flight < each.concurrency then
                roomy[#roomy + 1] = each
                least = math.min(least, load_of(each))
            end
        end
    end
    return roomy, any_usable, GAP * least + SLACK
end

local function closest(roomy, limit, caller, turn)
    local best, best_near, best_load, best_draw
    for _, each in ipairs(roomy) do
        local load = load_of(each)
        if load <= limit then
            local near = choice.closeness(each.place, caller)
            local better = best == nil or near > best_near
            if not better and near == best_near then
                better = load < best_load
                    or (load == best_load and choice.mix(turn, each.hash) > best_draw)
            end
            if better then
                best, best_near, best_load = each, near, load
                best_draw = choice.mix(turn, each.hash)
            end
        end
    end
    return best, best_near
end

local function any_closer(candidates, near, caller)
    for _, each in ipairs(candidates) do
        if is_usable(each) and choice.closeness(each.place, caller) > near then return true end
    end
    return false
end

-- The name of a replica, or nil, and the reason.
function choice.choose(candidates, caller, preferred, turn)
    local roomy, any_usable, limit = with_room(candidates)
    if #roomy == 0 then return nil, any_usable and "no-room" or "not-ready" end
    for _, name in ipairs(preferred) do
        for _, each in ipairs(roomy) do
            if each.name == name and load_of(each) <= limit then return name, "affinity" end
        end
    end
    local best, near = closest(roomy, limit, caller, turn)
    if any_closer(roomy, near, caller) then return best.name, "load" end
    if any_closer(candidates, near, caller) then return best.name, "full" end
    return best.name, "closest"
end

-- Usable replicas for a session (a CRC-32), best first.
function choice.session_order(candidates, caller, session)
    local order = {}
    for _, each in ipairs(candidates) do
        if is_usable(each) then
            order[#order + 1] = {
                name = each.name,
                near = choice.closeness(each.place, caller),
                draw = choice.mix(session, each.hash),
            }
        end
    end
    table.sort(order, function(one, two)
        if one.near ~= two.near then return one.near > two.near end
        return one.draw > two.draw
    end)
    local names = {}
    for index, each in ipairs(order) do names[index] = each.name end
    return names
end

-- Usable replicas that hold tokens of a prompt, the most first; equally many: in the order of choose.
function choice.cache_order(candidates, caller, tokens_of_replica, turn)
    local order = {}
    for _, each in ipairs(candidates) do
        local tokens = tokens_of_replica[each.name] or 0
        if is_usable(each) and tokens > 0 then
            order[#order + 1] = {
                name = each.name,
                tokens = tokens,
                near = choice.closeness(each.place, caller),
                load = load_of(each),
                draw = choice.mix(turn, each.hash),
            }
        end
    end
    table.sort(order, function(one, two)
        if one.tokens ~= two.tokens then return one.tokens > two.tokens end
        if one.near ~= two.near then return one.near > two.near end
        if one.load ~= two.load then return one.load < two.load end
        return one.draw > two.draw
    end)
    local names = {}
    for index, each in ipairs(order) do names[index] = each.name end
    return names
end

return choice
