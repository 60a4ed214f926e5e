-- What scripts see: Redis's sandbox on top of Lua 5.1's libraries.
--
-- Runs once per state with what Rust offers (`native`). Tables that scripts must not change are empty stand-ins whose
-- contents are in `contents`. Nothing here calls a script's function from Rust, and everything that catches errors lets
-- those pass that end the script.

local native, visible = ...

local error, type, tostring, tonumber, select = error, type, tostring, tonumber, select
local rawget, rawset, rawequal, next, pairs, ipairs = rawget, rawset, rawequal, next, pairs, ipairs
local getmetatable, setmetatable = getmetatable, setmetatable
local pcall, xpcall, unpack, sub = pcall, xpcall, unpack, string.sub
local getinfo, collect = debug.getinfo, collectgarbage
local create, resume, status = coroutine.create, coroutine.resume, coroutine.status
local insert, remove, concat, sort = table.insert, table.remove, table.concat, table.sort
local foreach, foreachi = table.foreach, table.foreachi
local work = native.work

local READONLY = 'Attempt to modify a readonly table'

-- Stand-ins and what they stand for.
local contents = {}

local function is_readonly() error(READONLY, 2) end

local function protect(table)
  local stand_in = setmetatable({}, { __index = table, __newindex = is_readonly })
  contents[stand_in] = table
  return stand_in
end

-- Errors that scripts cannot catch: the script is being ended.
local function is_fatal(e)
  return type(e) == 'userdata' and e ~= native.null or e == 'not enough memory'
end

-- A native function answers true and its results, or false and a message.
local function checked(ok, ...)
  if ok then return ... end
  error((...), 3)
end

-- One that raises its message instead, at the place where it is called.
local check = native.check

local function bad_argument(n, name, expected, value, level)
  error("bad argument #" .. n .. " to '" .. name .. "' (" .. expected .. ' expected, got ' .. type(value) .. ')', level + 1)
end

---- Basic functions

local function caught(ok, e, ...)
  if ok then return true, e, ... end
  if is_fatal(e) then error(e, 0) end
  -- As Redis has it: of an error of redis.call its text.
  if type(e) == 'table' then
    local text = rawget(e, 'err')
    if type(text) == 'string' then e = text end
  end
  return false, e, ...
end

local function passed(ok, e, ...)
  if not ok and is_fatal(e) then error(e, 0) end
  return ok, e, ...
end

local function get_metatable(value)
  if contents[value] then
    return contents[value] == visible.globals and visible.globals_meta or nil
  end
  if type(value) == 'string' then return visible.string_meta end
  return getmetatable(value)
end

local function load_text(text, name)
  local ok, f = native.compile(text, name)
  if ok then return f end
  return nil, f
end

local basic = {
  assert = assert, error = error, ipairs = ipairs, rawequal = rawequal, select = select, tonumber = tonumber,
  tostring = tostring, type = type, _VERSION = _VERSION, gcinfo = gcinfo,
  pcall = function(...) return caught(pcall(...)) end,
  xpcall = function(f, handler)
    return passed(xpcall(f, function(e)
      if is_fatal(e) then return e end
      return handler(e)
    end))
  end,
  pairs = function(t)
    local content = contents[t]
    if content then
      return function(_, key) return next(content, key) end, t, nil
    end
    if type(t) ~= 'table' then bad_argument(1, 'pairs', 'table', t, 2) end
    return next, t, nil
  end,
  next = function(t, key) return next(contents[t] or t, key) end,
  rawget = function(t, key) return rawget(contents[t] or t, key) end,
  rawset = function(t, key, value)
    if contents[t] then error(READONLY, 0) end
    return rawset(t, key, value)
  end,
  getmetatable = get_metatable,
  setmetatable = function(t, meta)
    if contents[t] then error(READONLY, 0) end
    return setmetatable(t, meta)
  end,
  unpack = function(t, i, j)
    if i ~= nil or j ~= nil then
      local from, to = tonumber(i or 1), tonumber(j or #t)
      if from and to then
        if from > to then return end
        -- Beyond what C's int holds there is no answer, and nothing may be added up there.
        if not (to - from < 8000) or from < -2147483648 or to > 2147483647 then
          error('too many results to unpack', 2)
        end
      end
    end
    return unpack(t, i, j)
  end,
  loadstring = function(text, name)
    if type(text) == 'number' then text = tostring(text) end
    if type(text) ~= 'string' then bad_argument(1, 'loadstring', 'string', text, 2) end
    return load_text(text, name or text)
  end,
  load = function(reader, name)
    if type(reader) ~= 'function' then bad_argument(1, 'load', 'function', reader, 2) end
    local parts = {}
    while true do
      local part = reader()
      if part == nil or part == '' then break end
      if type(part) ~= 'string' then return nil, 'reader function must return a string' end
      parts[#parts + 1] = part
    end
    return load_text(concat(parts), name or '=(load)')
  end,
  collectgarbage = function(what)
    if what == 'count' then return collect('count') end
    if what == nil or what == 'collect' or what == 'step' then collect('step') end
    return 0
  end,
}

---- Coroutines: a coroutine that is resumed begins with none of the C stack counted that others use.

local function resumed(ok, e, ...)
  native.leave()
  if not ok and is_fatal(e) then error(e, 0) end
  return ok, e, ...
end

local function resume_checked(co, ...)
  if not native.enter() then return false, 'C stack overflow' end
  return resumed(resume(co, ...))
end

local function of_wrapped(ok, e, ...)
  if ok then return e, ... end
  error(e, 3)
end

local coroutines = {
  create = create, status = status, running = coroutine.running, yield = coroutine.yield,
  resume = function(co, ...)
    if type(co) ~= 'thread' then error("bad argument #1 to 'resume' (coroutine expected)", 2) end
    return resume_checked(co, ...)
  end,
  wrap = function(f)
    if type(f) ~= 'function' then error("bad argument #1 to 'wrap' (Lua function expected)", 2) end
    local co = create(f)
    return function(...) return of_wrapped(resume_checked(co, ...)) end
  end,
}

---- Strings: what matches patterns or repeats can be stopped.

local strings = {
  byte = string.byte, char = string.char, dump = string.dump, format = string.format, gfind = string.gfind,
  len = string.len, sub = sub,
  lower = check(native.lower), reverse = check(native.reverse), upper = check(native.upper),
  find = check(native.find), match = check(native.match), rep = check(native.rep),
}

local scan = native.scan

local function scanned(ok, ...)
  if ok then return ... end
  error((...), 3)
end

local function text_argument(value, n, name)
  if type(value) == 'string' then return value end
  if type(value) == 'number' then return tostring(value) end
  bad_argument(n, name, 'string', value, 3)
end

function strings.gmatch(s, pattern)
  s, pattern = text_argument(s, 1, 'gmatch'), text_argument(pattern, 2, 'gmatch')
  local at = 1
  local function matched(first, behind, ...)
    if not first then
      at = #s + 2
      return nil
    end
    at = behind > first and behind or behind + 1
    return ...
  end
  return function()
    if at > #s + 1 then return nil end
    return matched(scanned(scan(s, pattern, at, false)))
  end
end

function strings.gsub(s, pattern, replacement, most)
  s, pattern = text_argument(s, 1, 'gsub'), text_argument(pattern, 2, 'gsub')
  local kind = type(replacement)
  if kind == 'number' or kind == 'string' then
    return checked(native.gsub(s, pattern, replacement, most))
  end
  if kind ~= 'function' and kind ~= 'table' then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  most = most == nil and #s + 1 or tonumber(most) or bad_argument(4, 'gsub', 'number', most, 2)
  local is_anchored = sub(pattern, 1, 1) == '^'
  local parts, count, at = {}, 0, 1
  local function replaced(first, behind, capture, ...)
    if not first then return false end
    count = count + 1
    parts[#parts + 1] = sub(s, at, first - 1)
    local value
    if kind == 'function' then value = replacement(capture, ...) else value = replacement[capture] end
    if not value then
      value = sub(s, first, behind - 1)
    elseif type(value) ~= 'string' and type(value) ~= 'number' then
      error('invalid replacement value (a ' .. type(value) .. ')', 3)
    end
    parts[#parts + 1] = value
    at = behind
    if behind == first then
      parts[#parts + 1] = sub(s, at, at)
      at = at + 1
    end
    return at <= #s + 1 and not is_anchored
  end
  while count < most and replaced(scanned(scan(s, pattern, at, true))) do end
  parts[#parts + 1] = sub(s, at)
  return concat(parts), count
end

-- Methods of strings are found here, and `getmetatable` shows something that cannot be changed.
local string_library = protect(strings)
getmetatable('').__index = strings

---- Tables

local function is_less(a, b) return a < b end

-- Whether a table has many values, or such as take long to compare.
local function is_long(t)
  if #t > 10000 then return true end
  for at = 1, #t do
    local value = rawget(t, at)
    if type(value) ~= 'number' and (type(value) ~= 'string' or #value > 1000) then return true end
  end
  return false
end

-- A function of which each call has instructions, so that calling it over and over can be stopped.
local function stoppable(f)
  if type(f) ~= 'function' or getinfo(f, 'S').what ~= 'C' then return f end
  return function(...) return f(...) end
end

local tables = {
  concat = concat, getn = table.getn, maxn = table.maxn,
  foreach = function(t, f) return foreach(t, stoppable(f)) end,
  foreachi = function(t, f) return foreachi(t, stoppable(f)) end,
  setn = table.setn,
  insert = function(t, ...)
    if contents[t] then error(READONLY, 0) end
    if type(t) ~= 'table' then bad_argument(1, 'insert', 'table', t, 2) end
    if select('#', ...) == 2 then
      local at = tonumber((...))
      if at and not (at > -1000) then error('too many values to move', 2) end
      work(#t)
    end
    return insert(t, ...)
  end,
  remove = function(t, ...)
    if type(t) ~= 'table' then bad_argument(1, 'remove', 'table', t, 2) end
    if select('#', ...) > 0 then work(#t) end
    return remove(t, ...)
  end,
  sort = function(t, less)
    if type(t) ~= 'table' then bad_argument(1, 'sort', 'table', t, 2) end
    -- A comparison in Lua can be stopped.
    if less == nil and is_long(t) then less = is_less end
    return sort(t, stoppable(less))
  end,
}

---- Numbers

local maths = {}
for name, f in pairs(math) do maths[name] = f end
maths.random, maths.randomseed = check(native.random), check(native.randomseed)

---- redis

local function raised(text)
  error({ err = text })
end

local call = native.pcall

local redis = {
  call = native.call,
  pcall = function(...) return (call(...)) end,
  error_reply = function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
      return { err = 'ERR wrong number or type of arguments' }
    end
    return { err = native.error_text(text) }
  end,
  status_reply = function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
      return { err = 'ERR wrong number or type of arguments' }
    end
    return { ok = text }
  end,
  sha1hex = function(...)
    if select('#', ...) ~= 1 then raised('ERR wrong number of arguments') end
    local text = ...
    if type(text) ~= 'string' then text = type(text) == 'number' and tostring(text) or '' end
    work(#text)
    return native.sha1hex(text)
  end,
  log = function(...)
    local count, level = select('#', ...), (...)
    if count < 2 then raised('ERR redis.log() requires two arguments or more.') end
    level = tonumber(level)
    if not level then raised('ERR First argument must be a number (log level).') end
    if level < 0 or level > 3 then raised('ERR Invalid debug level.') end
    local parts = {}
    for at = 2, count do
      local part = select(at, ...)
      if type(part) == 'string' or type(part) == 'number' then parts[#parts + 1] = part end
    end
    native.log(level, concat(parts, ' '))
  end,
  setresp = function(...)
    if select('#', ...) ~= 1 then raised('ERR redis.setresp() requires one argument.') end
    local version = tonumber((...))
    if version ~= 2 and version ~= 3 then raised('ERR RESP version must be 2 or 3.') end
    native.setresp(version)
  end,
  set_repl = function(...)
    if select('#', ...) ~= 1 then raised('ERR redis.set_repl() requires two arguments.') end
    local flags = tonumber((...)) or 0
    if flags < 0 or flags > 3 then
      raised('ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.')
    end
  end,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
}

---- Functions: what a library registers while it is loaded

local FLAGS = { ['no-writes'] = true, ['allow-oom'] = true, ['allow-stale'] = true, ['no-cluster'] = true,
  ['allow-cross-slot-keys'] = true }

-- Functions by name while a library is loaded, and in their order; and the bytes that they are given to Rust with.
local registered, registered_bytes

local function is_text(value) return type(value) == 'string' or type(value) == 'number' end

local function lowered(text)
  local _, lower = native.lower(text)
  return lower
end

local function flags_of(list)
  local flags = {}
  for at = 1, 1e9 do
    local flag = list[at]
    if flag == nil then break end
    flag = is_text(flag) and lowered(tostring(flag))
    if not flag or not FLAGS[flag] then raised('ERR unknown flag given') end
    flags[flag] = true
  end
  return flags
end

local function named_arguments(arguments)
  local name, callback, description, flags
  for key, value in next, contents[arguments] or arguments do
    if not is_text(key) then raised('ERR named argument key given to redis.register_function is not a string') end
    key = lowered(tostring(key))
    if key == 'function_name' then
      if not is_text(value) then raised('ERR function_name argument given to redis.register_function must be a string') end
      name = tostring(value)
    elseif key == 'description' then
      if not is_text(value) then raised('ERR description argument given to redis.register_function must be a string') end
      description = tostring(value)
    elseif key == 'callback' then
      if type(value) ~= 'function' then
        raised('ERR callback argument given to redis.register_function must be a function')
      end
      callback = value
    elseif key == 'flags' then
      if type(value) ~= 'table' then
        raised('ERR flags argument to redis.register_function must be a table representing function flags')
      end
      flags = flags_of(value)
    else
      raised('ERR unknown argument given to redis.register_function')
    end
  end
  if not name then raised('ERR redis.register_function must get a function name argument') end
  if not callback then raised('ERR redis.register_function must get a callback argument') end
  return name, callback, description, flags
end

local function register_function(...)
  if not registered then raised('ERR redis.register_function can only be called on FUNCTION LOAD command') end
  local count = select('#', ...)
  if count < 1 or count > 2 then raised('ERR wrong number of arguments to redis.register_function') end
  local name, callback, description, flags = ...
  if count == 1 then
    if type(name) ~= 'table' then
      raised('ERR calling redis.register_function with a single argument is only applicable to Lua table (representing '
        .. 'named arguments).')
    end
    name, callback, description, flags = named_arguments(name)
  else
    if not is_text(name) then raised('ERR first argument to redis.register_function must be a string') end
    if type(callback) ~= 'function' then raised('ERR second argument to redis.register_function must be a function') end
    name = tostring(name)
  end
  if not select(2, native.match(name, '^[%w_]+$')) then
    raised('ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long')
  end
  -- FCALL finds them in any case.
  local folded = lowered(name)
  if registered[folded] then raised('ERR Function already exists in the library') end
  registered_bytes = registered_bytes + native.function_bytes + #name + #(description or '')
  if registered_bytes > native.library_bytes_max then
    raised('ERR the functions of a library take more than ' .. native.library_bytes_max .. ' bytes')
  end
  local entry = { name = name, callback = callback, description = description, flags = flags or {} }
  registered[folded] = entry
  registered[#registered + 1] = entry
end

---- Libraries

local cjson
local function new_cjson()
  return {
    _NAME = 'cjson', _VERSION = '2.1.0', null = native.null, encode = check(native.json_encode),
    decode = check(native.json_decode), encode_sparse_array = check(native.json_sparse_array),
    encode_max_depth = check(native.json_encode_max_depth), decode_max_depth = check(native.json_decode_max_depth),
    encode_number_precision = check(native.json_number_precision), encode_keep_buffer = check(native.json_keep_buffer),
    encode_invalid_numbers = check(native.json_encode_invalid), decode_invalid_numbers = check(native.json_decode_invalid),
    new = function() return new_cjson() end,
  }
end
cjson = new_cjson()

local cmsgpack = {
  _NAME = 'cmsgpack', _VERSION = 'lua-cmsgpack 0.4.0',
  _COPYRIGHT = 'Copyright (C) 2012, Salvatore Sanfilippo', _DESCRIPTION = 'MessagePack C implementation for Lua',
  pack = check(native.msgpack_pack), unpack = check(native.msgpack_unpack),
  unpack_one = check(native.msgpack_unpack_one), unpack_limit = check(native.msgpack_unpack_limit),
}

local struct = {
  pack = check(native.struct_pack), unpack = check(native.struct_unpack), size = check(native.struct_size),
}

local bit = {}
for name, f in pairs(native.bit) do bit[name] = check(f) end

---- Globals

local function on_error(e)
  if is_fatal(e) then return e end
  local level = 2
  local at = getinfo(level, 'Sl')
  while at and (at.what == 'C' or at.what == 'tail' or at.source == '=redis') do
    level = level + 1
    at = getinfo(level, 'Sl')
  end
  if type(e) ~= 'table' or contents[e] then e = { err = 'ERR ' .. tostring(e) } end
  if at then
    rawset(e, 'source', at.source)
    rawset(e, 'line', at.currentline)
  end
  return e
end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

local globals, stand_in = visible.globals, visible.stand_in
for name, value in pairs(basic) do globals[name] = value end
globals._G = stand_in
globals.redis = protect(redis)
globals.string, globals.table, globals.math = string_library, protect(tables), protect(maths)
globals.coroutine, globals.cjson, globals.cmsgpack = protect(coroutines), protect(cjson), protect(cmsgpack)
globals.struct, globals.bit = protect(struct), protect(bit)
if native.is_of_functions then
  redis.replicate_commands, redis.breakpoint, redis.debug = nil, nil, nil
else
  globals.KEYS, globals.ARGV = {}, {}
  globals.__redis__err__handler = on_error
end
setmetatable(globals, { __index = missing })

-- What a library sees while it is loaded, and nothing else.
local of_loading = setmetatable({
  redis = protect(setmetatable({
    register_function = register_function, log = redis.log,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
  }, { __index = missing })),
}, { __index = missing })

local stand_in_meta = { __newindex = is_readonly }

local function show(seen)
  contents[stand_in] = seen
  stand_in_meta.__index = seen
end

for name in pairs(stand_in) do rawset(stand_in, name, nil) end
show(globals)
setmetatable(stand_in, stand_in_meta)
visible.globals_meta = protect({ __index = missing })
visible.string_meta = protect({ __index = string_library })

-- Carries out a script; calls a function of a library; has a library register its functions.
return function(script) return xpcall(script, on_error) end,
  function(f, keys, arguments)
    return xpcall(function() return f(keys, arguments) end, on_error)
  end,
  function(library)
    registered, registered_bytes = {}, 0
    show(of_loading)
    local ok, e = pcall(library)
    show(globals)
    local all = registered
    registered = nil
    if ok then return true, all end
    if is_fatal(e) then error(e, 0) end
    if type(e) == 'table' then e = rawget(e, 'err') else e = 'ERR ' .. tostring(e) end
    return false, is_text(e) and tostring(e) or 'ERR unknown error'
  end
