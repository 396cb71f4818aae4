-- Which replica was sent which beginnings of prompts: routing/prefixes.py for HAProxy. crc32 is a function of a string.

local prefixes = {}

local BLOCK, MOST_BLOCKS, MOST_KEYS = 256, 64, 100000

function prefixes.keys(text, crc32)
    local keys, key = {}, 0
    for start = 1, math.min(#text, BLOCK * MOST_BLOCKS) - BLOCK + 1, BLOCK do
        key = crc32(key .. ":" .. text:sub(start, start + BLOCK - 1))
        keys[#keys + 1] = key
    end
    return keys
end

function prefixes.new(most_keys)
    return {newer = {}, older = {}, count = 0, most_keys = most_keys or MOST_KEYS}
end

function prefixes.replica(known, keys)
    for index = #keys, 1, -1 do
        local found = known.newer[keys[index]] or known.older[keys[index]]
        if found then return found end
    end
    return nil
end

function prefixes.record(known, keys, replica)
    if known.count + #keys > known.most_keys then
        known.older, known.newer, known.count = known.newer, {}, 0
    end
    for _, key in ipairs(keys) do
        if known.newer[key] == nil then known.count = known.count + 1 end
        known.newer[key] = replica
    end
end

return prefixes
