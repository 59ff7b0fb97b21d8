-- Wireshark dissector for the Weir protocol, version 1 (spec/protocol.md section 2, spec/envelopes.md), for bulk connections, version 2 (spec/bulk.md),
-- and for SCTP in Weir's datagrams with the records in it, version 1 (spec/sctp.md).
--
-- Use:   tshark -X lua_script:tools/wireshark/weir.lua -r trace.pcapng -V
--        or copy this file into Wireshark's personal plugin folder (Help, About, Folders).
-- Any port: datagrams are recognised by their shape, bulk connections by the greeting that begins a TCP connection. At level "encrypt" frames cannot be read; at the other levels neither check
-- nor MAC is verified, since the keys are not in the trace. `weir.malformed` marks what does not follow the layouts.

local weir = Proto("weir", "Weir message transport")

local KINDS = { [0] = "INIT", "COOKIE", "CONFIRM", "ACCEPT", "REFUSE", "PROTECTED", "RESET" }
local LEVELS = { [0] = "integrity", "auth", "encrypt" }
local REFUSALS = { "stale incarnation", "version or features", "level too low", "no room", "shutting down" }
local FRAMES = {
  [0] = "PADDING", "PING", "ACK", "CREDIT", "GRANT", "MSG", "RNDV", "PATH_CHALLENGE", "PATH_RESPONSE", [10] = "CLOSE",
  [11] = "RNDV_ABORT", [12] = "PARITY", [13] = "RECOVERED", [14] = "BULK", [15] = "MARKED",
}
local ENVELOPES = { "EAGER", "RTS", "CTS", "SYNC_ACK", [7] = "WRITE", [8] = "WRITE_RTS", [9] = "READ", [10] = "DONE", [11] = "NOTICED", [12] = "ATOMIC", [13] = "ATOMIC_DONE" }
-- The 64-bit fields of each envelope, in order, without the optional ones.
local ENVELOPE_WORDS = {
  {}, { "len", "op" }, { "op", "rndv", "len", "granted" }, { "op" }, false, false, { "key", "addr", "op" },
  { "key", "addr", "len", "op" }, { "key", "addr", "len", "rndv", "granted" }, { "op" }, { "count" }, { "key", "addr", "op" }, { "op" },
}
-- The operations of ATOMIC, by the low byte of its code, and its types, by the high one.
local ATOMIC_OPS = {
  [0] = "MIN", "MAX", "SUM", "PROD", "LOR", "LAND", "BOR", "BAND", "LXOR", "BXOR", "READ", "WRITE", "CSWAP", "CSWAP_NE", "CSWAP_LE", "CSWAP_LT",
  "CSWAP_GE", "CSWAP_GT", "MSWAP",
}
local ATOMIC_TYPES = { "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64" }
local MAC_BYTES, MAX_ENVELOPE, MAX_ACK_ENTRIES, MAX_ADDRESSES = 16, 48, 32, 8

local f = {
  version = ProtoField.uint8("weir.version", "Version", base.DEC, nil, 0xf0),
  kind = ProtoField.uint8("weir.kind", "Kind", base.DEC, KINDS, 0x0f),
  level = ProtoField.uint8("weir.level", "Level", base.DEC, LEVELS, 0x03),
  ack_now = ProtoField.bool("weir.ack_now", "Acknowledge now", 8, nil, 0x04),
  path = ProtoField.uint8("weir.path", "Path"),
  number = ProtoField.uint32("weir.number", "Packet number (low 32 bits)"),
  association = ProtoField.uint64("weir.association", "Receiver's association", base.HEX),
  crc = ProtoField.uint32("weir.crc", "CRC32C", base.HEX),
  tag = ProtoField.bytes("weir.tag", "Tag"),
  ciphertext = ProtoField.bytes("weir.ciphertext", "Encrypted frames"),
  features = ProtoField.uint16("weir.features", "Features", base.HEX),
  wanted = ProtoField.uint8("weir.handshake.level", "Level", base.DEC, LEVELS),
  opener = ProtoField.uint64("weir.opener", "Opener's endpoint", base.HEX),
  responder = ProtoField.uint64("weir.responder", "Responder's endpoint", base.HEX),
  opener_association = ProtoField.uint64("weir.opener_association", "Opener's association", base.HEX),
  responder_association = ProtoField.uint64("weir.responder_association", "Responder's association", base.HEX),
  nonce = ProtoField.bytes("weir.nonce", "Nonce"),
  cookie = ProtoField.bytes("weir.cookie", "Cookie"),
  refusal = ProtoField.uint8("weir.refusal", "Refusal", base.DEC, REFUSALS),
  mac = ProtoField.bytes("weir.mac", "MAC"),
  max_datagram = ProtoField.uint16("weir.max_datagram", "Largest datagram"),
  streams = ProtoField.uint16("weir.streams", "Streams"),
  credit_msgs = ProtoField.uint32("weir.initial_credit_msgs", "Initial credit, messages"),
  credit_bytes = ProtoField.uint64("weir.initial_credit_bytes", "Initial credit, bytes"),
  rx_buffer = ProtoField.uint64("weir.rx_buffer_bytes", "Receive buffer, bytes"),
  ack_delay_max = ProtoField.uint32("weir.ack_delay_max_us", "Longest acknowledgement delay, us"),
  peer_timeout = ProtoField.uint32("weir.peer_timeout_ms", "Peer time-out, ms"),
  bulk_connections = ProtoField.uint8("weir.bulk_connections", "Bulk connections taken, version"),
  address = ProtoField.string("weir.address", "Address"),
  frame = ProtoField.uint8("weir.frame", "Frame", base.HEX, FRAMES),
  frame_flags = ProtoField.uint8("weir.frame.flags", "Flags", base.HEX),
  largest = ProtoField.uint32("weir.ack.largest", "Largest acknowledged"),
  delay = ProtoField.uint32("weir.ack.delay_ns", "Delay, ns"),
  receiver_delay = ProtoField.uint16("weir.ack.receiver_delay_us", "Receiver delay, us"),
  read = ProtoField.uint32("weir.ack.read_us", "Read at, us of the reader's clock"),
  range = ProtoField.string("weir.ack.range", "Acknowledged"),
  msgs_limit = ProtoField.uint32("weir.credit.msgs_limit", "Messages, from the start"),
  bytes_limit = ProtoField.uint64("weir.credit.bytes_limit", "Bytes, from the start"),
  handle = ProtoField.uint64("weir.handle", "Rendezvous transfer handle", base.HEX),
  limit = ProtoField.uint64("weir.grant.limit", "Granted up to"),
  control = ProtoField.bool("weir.msg.control", "Control message", 8, nil, 0x01),
  stream = ProtoField.uint16("weir.msg.stream", "Stream"),
  mseq = ProtoField.uint32("weir.msg.mseq", "Message (low 32 bits)"),
  sseq = ProtoField.uint32("weir.msg.sseq", "Number in the stream"),
  total_len = ProtoField.uint32("weir.msg.total_len", "Length of the message"),
  offset = ProtoField.uint64("weir.offset", "Offset"),
  len = ProtoField.uint16("weir.len", "Length"),
  payload = ProtoField.bytes("weir.payload", "Payload"),
  data = ProtoField.uint64("weir.path.data", "Data", base.HEX),
  code = ProtoField.uint16("weir.code", "Code"),
  reason = ProtoField.string("weir.close.reason", "Reason"),
  count = ProtoField.uint8("weir.parity.count", "Fragments covered", base.DEC, nil, 0x7f),
  row = ProtoField.uint8("weir.parity.row", "Row of the group"),
  parity_rows = ProtoField.uint8("weir.parity.rows", "Rows of parity taken"),
  of_message = ProtoField.bool("weir.of_message", "Key is a message number", base.NONE),
  key = ProtoField.uint64("weir.key", "Message or rendezvous data", base.HEX),
  bulk = ProtoField.uint32("weir.bulk", "Bulk connection"),
  bulk_over = ProtoField.bool("weir.bulk.over", "No more of it is read", base.NONE),
  bulk_read = ProtoField.uint64("weir.bulk.read", "Bytes of complete records read of it"),
  marked = ProtoField.uint32("weir.marked", "Packets that came marked by the path"),
  env = ProtoField.uint8("weir.envelope", "Envelope", base.DEC, ENVELOPES),
  env_tagged = ProtoField.bool("weir.envelope.tagged", "Tagged", 8, nil, 0x01),
  env_has_data = ProtoField.bool("weir.envelope.has_data", "Has immediate data", 8, nil, 0x02),
  env_sync = ProtoField.bool("weir.envelope.sync", "Wants to know when matched or written", 8, nil, 0x08),
  env_fetch = ProtoField.bool("weir.envelope.fetch", "The value from before is wanted, or there", 8, nil, 0x20),
  env_atomic = ProtoField.uint8("weir.envelope.atomic", "Operation", base.DEC, ATOMIC_OPS),
  env_type = ProtoField.uint8("weir.envelope.type", "Type", base.DEC, ATOMIC_TYPES),
  env_code = ProtoField.uint16("weir.envelope.code", "Code"),
  env_tag = ProtoField.uint64("weir.envelope.tag", "Tag", base.HEX),
  env_word = ProtoField.uint64("weir.envelope.word", "Word", base.HEX),
  env_data = ProtoField.uint64("weir.envelope.data", "Immediate data", base.HEX),
}
local all = {}
for _, field in pairs(f) do all[#all + 1] = field end
weir.fields = all

local malformed = ProtoExpert.new("weir.malformed", "Does not follow the layout", expert.group.MALFORMED, expert.severity.ERROR)
weir.experts = { malformed }

-- Length of the frame at `at` in `buf` (which ends at `last`), or nil when it is malformed.
local function frame_length(buf, at, last)
  local left = last - at
  local function has(n) return left >= n and n or nil end
  local kind = buf(at, 1):uint()
  if kind == 0x00 then return left end
  if kind == 0x01 then return 1 end
  if kind == 0x02 then
    if left < 20 then return nil end
    local count = buf(at + 1, 1):uint()
    return count <= MAX_ACK_ENTRIES and has(20 + 4 * count) or nil
  end
  if kind == 0x03 or kind == 0x0b or kind == 0x07 or kind == 0x08 or kind == 0x0e then return has(16) end
  if kind == 0x0f then return has(8) end
  if kind == 0x04 or kind == 0x0d then return has(24) end
  if kind == 0x05 then
    if left < 24 then return nil end
    local envelope = buf(at + 22, 1):uint()
    return envelope <= MAX_ENVELOPE and has(24 + envelope + buf(at + 20, 2):le_uint()) or nil
  end
  if kind == 0x06 or kind == 0x0c then
    if left < 24 then return nil end
    return has(24 + buf(at + 2, 2):le_uint())
  end
  if kind == 0x0a then
    if left < 5 then return nil end
    return has(5 + buf(at + 4, 1):uint())
  end
  return nil
end

local function address_text(buf, at)
  local port = buf(at + 2, 2):le_uint()
  if buf(at, 1):uint() == 4 then return tostring(buf(at + 4, 4):ipv4()) .. ":" .. port, 8 end
  return "[" .. tostring(buf(at + 4, 16):ipv6()) .. "]:" .. port, 20
end

local function add_addresses(buf, at, count, tree)
  for _ = 1, count do
    local text, n = address_text(buf, at)
    tree:add(f.address, buf(at, n), text)
    at = at + n
  end
  return at
end

local function dissect_envelope(buf, at, len, tree)
  local node = tree:add(buf(at, len), "Envelope")
  local kind = len >= 4 and buf(at, 1):uint() or 0
  local words = ENVELOPE_WORDS[kind]
  if not words then
    node:add_proto_expert_info(malformed, "Unknown envelope")
    return "?"
  end
  local flags = buf(at + 1, 1):uint()
  local tagged, data, wide, sync = flags % 2 == 1, flags % 4 >= 2, flags % 8 >= 4, flags % 16 >= 8
  node:set_text("Envelope " .. ENVELOPES[kind])
  node:add(f.env, buf(at, 1))
  node:add(f.env_tagged, buf(at + 1, 1))
  node:add(f.env_has_data, buf(at + 1, 1))
  node:add(f.env_sync, buf(at + 1, 1))
  local atomic, fetch = ENVELOPES[kind] == "ATOMIC", flags % 64 >= 32
  if kind >= 12 then node:add(f.env_fetch, buf(at + 1, 1)) end
  if atomic then
    node:add(f.env_atomic, buf(at + 2, 1))
    node:add(f.env_type, buf(at + 3, 1))
  else
    node:add_le(f.env_code, buf(at + 2, 2))
  end
  local next, last = at + 4, at + len
  local function word(field, label)
    if next + 8 > last then return false end
    local item = node:add_le(field, buf(next, 8))
    if label then item:set_text(label .. ": 0x" .. buf(next, 8):le_uint64():tohex()) end
    next = next + 8
    return true
  end
  local whole = not tagged or word(f.env_tag)
  for _, name in ipairs(words) do whole = whole and word(f.env_word, name) end
  if sync and ENVELOPES[kind] == "EAGER" then whole = whole and word(f.env_word, "op") end
  if atomic then
    local op = buf(at + 2, 1):uint()
    if op ~= 10 then whole = whole and word(f.env_word, "operand") end
    if op >= 12 then whole = whole and word(f.env_word, "compare") end
  elseif kind == 13 and fetch then
    whole = whole and word(f.env_word, "value")
  end
  if data and whole then
    local n = wide and 8 or 4
    whole = next + n <= last
    if whole then
      node:add_le(f.env_data, buf(next, n))
      next = next + n
    end
  end
  if not whole or next ~= last then node:add_proto_expert_info(malformed, "Envelope of the wrong length") end
  return ENVELOPES[kind]
end

-- One function a frame type: adds the fields, returns a word for the info column.
local dissect = {}

dissect[0x02] = function(buf, at, _, tree)
  tree:add_le(f.largest, buf(at + 4, 4))
  tree:add_le(f.delay, buf(at + 8, 4))
  tree:add_le(f.receiver_delay, buf(at + 2, 2))
  tree:add_le(f.read, buf(at + 12, 4))
  local largest, first = buf(at + 4, 4):le_uint(), buf(at + 16, 4):le_uint()
  local low = largest - first + 1
  tree:add(f.range, buf(at + 16, 4), low .. "-" .. largest)
  for i = 0, buf(at + 1, 1):uint() - 1 do
    local entry = at + 20 + 4 * i
    local high = low - buf(entry, 2):le_uint() - 1
    low = high - buf(entry + 2, 2):le_uint() + 1
    tree:add(f.range, buf(entry, 4), low .. "-" .. high)
  end
  return "ACK " .. largest
end

dissect[0x03] = function(buf, at, _, tree)
  tree:add_le(f.msgs_limit, buf(at + 4, 4))
  tree:add_le(f.bytes_limit, buf(at + 8, 8))
end

dissect[0x04] = function(buf, at, _, tree)
  tree:add_le(f.handle, buf(at + 8, 8))
  tree:add_le(f.limit, buf(at + 16, 8))
end

dissect[0x05] = function(buf, at, _, tree)
  tree:add(f.control, buf(at + 1, 1))
  tree:add_le(f.stream, buf(at + 2, 2))
  tree:add_le(f.mseq, buf(at + 4, 4))
  tree:add_le(f.sseq, buf(at + 8, 4))
  tree:add_le(f.total_len, buf(at + 12, 4))
  tree:add(f.offset, buf(at + 16, 4), UInt64(buf(at + 16, 4):le_uint()))
  tree:add_le(f.len, buf(at + 20, 2))
  local len, envelope = buf(at + 20, 2):le_uint(), buf(at + 22, 1):uint()
  local name = envelope > 0 and dissect_envelope(buf, at + 24, envelope, tree) or "no envelope"
  if len > 0 then tree:add(f.payload, buf(at + 24 + envelope, len)) end
  local offset, total = buf(at + 16, 4):le_uint(), buf(at + 12, 4):le_uint()
  if offset + len > total then tree:add_proto_expert_info(malformed, "Fragment beyond the message") end
  return string.format("MSG %d %s %d..%d/%d", buf(at + 4, 4):le_uint(), name, offset, offset + len, total)
end

dissect[0x06] = function(buf, at, _, tree)
  local len = buf(at + 2, 2):le_uint()
  tree:add_le(f.len, buf(at + 2, 2))
  tree:add_le(f.handle, buf(at + 8, 8))
  tree:add_le(f.offset, buf(at + 16, 8))
  if len > 0 then tree:add(f.payload, buf(at + 24, len)) end
  return "RNDV " .. tostring(buf(at + 16, 8):le_uint64()) .. "+" .. len
end

dissect[0x07] = function(buf, at, _, tree) tree:add_le(f.data, buf(at + 8, 8)) end
dissect[0x08] = dissect[0x07]

dissect[0x0a] = function(buf, at, n, tree)
  tree:add_le(f.code, buf(at + 2, 2))
  if n > 5 then tree:add(f.reason, buf(at + 5, n - 5)) end
end

dissect[0x0b] = function(buf, at, _, tree)
  tree:add_le(f.code, buf(at + 2, 2))
  tree:add_le(f.handle, buf(at + 8, 8))
end

dissect[0x0c] = function(buf, at, n, tree)
  tree:add(f.count, buf(at + 1, 1))
  tree:add(f.of_message, buf(at + 1, 1), buf(at + 1, 1):uint() >= 0x80)
  tree:add(f.row, buf(at + 4, 1))
  tree:add_le(f.len, buf(at + 2, 2))
  tree:add_le(f.key, buf(at + 8, 8))
  tree:add_le(f.offset, buf(at + 16, 8))
  if n > 24 then tree:add(f.payload, buf(at + 24, n - 24)) end
end

dissect[0x0d] = function(buf, at, _, tree)
  tree:add(f.of_message, buf(at + 1, 1), buf(at + 1, 1):uint() % 2 == 1)
  tree:add_le(f.len, buf(at + 2, 2))
  tree:add_le(f.key, buf(at + 8, 8))
  tree:add_le(f.offset, buf(at + 16, 8))
end

dissect[0x0e] = function(buf, at, _, tree)
  local bulk = buf(at + 4, 4):le_uint()
  tree:add_le(f.bulk, buf(at + 4, 4))
  tree:add_le(f.bulk_read, buf(at + 8, 8))
  tree:add(f.bulk_over, buf(at + 1, 1), buf(at + 1, 1):uint() % 2 == 1)
  if bulk == 0 then return "BULK wanted" end
  local over = buf(at + 1, 1):uint() % 2 == 1 and " over" or ""
  return string.format("BULK %d%s read %s", bulk, over, tostring(buf(at + 8, 8):le_uint64()))
end

dissect[0x0f] = function(buf, at, _, tree)
  tree:add(f.path, buf(at + 1, 1))
  tree:add_le(f.marked, buf(at + 4, 4))
  return string.format("MARKED %d on path %d", buf(at + 4, 4):le_uint(), buf(at + 1, 1):uint())
end

local function dissect_frames(buf, at, last, tree)
  local names = {}
  while at < last do
    local kind = buf(at, 1):uint()
    local n = frame_length(buf, at, last)
    if not n then
      tree:add_proto_expert_info(malformed, string.format("Frame of type 0x%02x at offset %d", kind, at))
      names[#names + 1] = "MALFORMED"
      break
    end
    local node = tree:add(buf(at, n), FRAMES[kind])
    node:add(f.frame, buf(at, 1))
    names[#names + 1] = dissect[kind] and dissect[kind](buf, at, n, node) or FRAMES[kind]
    at = at + n
  end
  return table.concat(names, ", ")
end

local function dissect_protected(buf, tree)
  local level = buf(1, 1):uint() % 4
  tree:add(f.level, buf(1, 1))
  tree:add(f.ack_now, buf(1, 1))
  tree:add(f.path, buf(2, 1))
  tree:add_le(f.number, buf(4, 4))
  tree:add_le(f.association, buf(8, 8))
  local text = "#" .. buf(4, 4):le_uint() .. " "
  if level == 0 then
    tree:add_le(f.crc, buf(16, 4))
    return text .. dissect_frames(buf, 20, buf:len(), tree)
  end
  local last = buf:len() - MAC_BYTES
  tree:add(f.tag, buf(last, MAC_BYTES))
  if level == 1 then return text .. dissect_frames(buf, 16, last, tree) end
  if last > 16 then tree:add(f.ciphertext, buf(16, last - 16)) end
  return text .. "encrypted"
end

-- Parameters from `at`; returns where they end, or nil.
local function dissect_parameters(buf, at, last, tree)
  if last - at < 36 then return nil end
  tree:add_le(f.max_datagram, buf(at, 2))
  tree:add_le(f.streams, buf(at + 2, 2))
  tree:add_le(f.credit_msgs, buf(at + 4, 4))
  tree:add_le(f.credit_bytes, buf(at + 8, 8))
  tree:add_le(f.rx_buffer, buf(at + 16, 8))
  tree:add_le(f.ack_delay_max, buf(at + 24, 4))
  tree:add_le(f.peer_timeout, buf(at + 28, 4))
  tree:add(f.bulk_connections, buf(at + 33, 1))
  local count, n = buf(at + 32, 1):uint(), at + 36
  if count > MAX_ADDRESSES then return nil end
  for _ = 1, count do
    if last - n < 4 then return nil end
    local family = buf(n, 1):uint()
    local size = family == 4 and 8 or family == 6 and 20 or nil
    if not size or last - n < size then return nil end
    add_addresses(buf, n, 1, tree)
    n = n + size
  end
  return n
end

local function dissect_handshake(buf, kind, tree)
  local last = buf:len() - MAC_BYTES
  local ends = last
  if kind == 0 or kind == 2 then
    tree:add(f.wanted, buf(1, 1))
    tree:add_le(f.features, buf(2, 2))
    tree:add_le(f.opener, buf(8, 8))
    tree:add_le(f.responder, buf(16, 8))
    tree:add_le(f.opener_association, buf(24, 8))
    tree:add(f.nonce, buf(32, 16))
    if kind == 2 then
      tree:add(f.parity_rows, buf(4, 1))
      tree:add(f.cookie, buf(48, 32))
      ends = dissect_parameters(buf, 80, last, tree)
    end
  elseif kind == 1 then
    tree:add_le(f.opener_association, buf(8, 8))
    tree:add(f.cookie, buf(16, 32))
  elseif kind == 3 then
    tree:add(f.wanted, buf(1, 1))
    tree:add_le(f.features, buf(2, 2))
    tree:add(f.parity_rows, buf(4, 1))
    tree:add_le(f.opener_association, buf(8, 8))
    tree:add_le(f.responder, buf(16, 8))
    tree:add_le(f.responder_association, buf(24, 8))
    tree:add(f.nonce, buf(32, 16))
    ends = dissect_parameters(buf, 48, last, tree)
  elseif kind == 4 then
    tree:add(f.refusal, buf(1, 1))
    tree:add_le(f.opener_association, buf(8, 8))
    tree:add_le(f.responder, buf(16, 8))
  else
    tree:add_le(f.association, buf(8, 8))
    tree:add_le(f.responder, buf(16, 8))
  end
  tree:add(f.mac, buf(last, MAC_BYTES))
  if ends ~= last then tree:add_proto_expert_info(malformed, "Parameters do not fill the packet") end
  return kind == 4 and (REFUSALS[buf(1, 1):uint()] or "") or ""
end

local EXACT = { [0] = 160, [1] = 64, [4] = 40, [6] = 40 }
local AT_LEAST = { [2] = 80 + 36 + MAC_BYTES, [3] = 48 + 36 + MAC_BYTES }

-- Does it have the shape of a packet? Frames are looked at too: a first byte of 0x15 alone is too common.
local function looks_like_one(buf)
  local len = buf:len()
  if len < 20 or buf(0, 1):uint() < 0x10 or buf(0, 1):uint() > 0x16 then return false end
  local kind = buf(0, 1):uint() % 16
  if kind ~= 5 then return len == EXACT[kind] or (AT_LEAST[kind] ~= nil and len >= AT_LEAST[kind] and buf(1, 1):uint() <= 2) end
  local flags = buf(1, 1):uint()
  if flags > 7 or flags % 4 == 3 or buf(2, 1):uint() > 7 then return false end
  local level = flags % 4
  if level == 2 then return len >= 32 end
  local at, last = 20, len
  if level == 1 then at, last = 16, len - MAC_BYTES end
  while at < last do
    local n = frame_length(buf, at, last)
    if not n then return false end
    at = at + n
  end
  return at == last
end

function weir.dissector(buf, pinfo, root)
  local first = buf:len() > 0 and buf(0, 1):uint() or 0
  local kind = first % 16
  if buf:len() < (kind == 5 and 20 or EXACT[kind] or AT_LEAST[kind] or 1) or first < 0x10 or first > 0x16 then return 0 end
  if kind == 5 and buf(1, 1):uint() % 4 > 0 and buf:len() < 32 then return 0 end
  pinfo.cols.protocol = "Weir"
  local tree = root:add(weir, buf())
  tree:add(f.version, buf(0, 1))
  tree:add(f.kind, buf(0, 1))
  local text
  if kind == 5 then text = dissect_protected(buf, tree) else text = dissect_handshake(buf, kind, tree) end
  pinfo.cols.info = KINDS[kind] .. " " .. text
  tree:append_text(", " .. KINDS[kind] .. " " .. text)
  return buf:len()
end

weir:register_heuristic("udp", function(buf, pinfo, root)
  if not looks_like_one(buf) then return false end
  weir.dissector(buf, pinfo, root)
  return true
end)
-- For "Decode As" where the shape misleads.
DissectorTable.get("udp.port"):add_for_decode_as(weir)

-- Bulk connections: a greeting each way, then records. Which of them begins where a row of bytes goes on, its first byte tells.

local bulk = Proto("weirbulk", "Weir bulk connection")

local MAGIC = "WEIRLANE"
local GREETING_BYTES, RECORD_HEAD_BYTES, MAX_RECORD = 40, 64, 2 ^ 24
local RECORDS = { "message", "rendezvous transfer" }

local l = {
  version = ProtoField.uint8("weirbulk.version", "Version"),
  number = ProtoField.uint32("weirbulk.bulk", "Number within the association"),
  association = ProtoField.uint64("weirbulk.association", "Receiver's association", base.HEX),
  mac = ProtoField.bytes("weirbulk.mac", "MAC"),
  kind = ProtoField.uint8("weirbulk.kind", "Record of a", base.DEC, RECORDS),
  envelope_len = ProtoField.uint8("weirbulk.envelope_len", "Length of the envelope"),
  stream = ProtoField.uint16("weirbulk.stream", "Stream"),
  sseq = ProtoField.uint32("weirbulk.sseq", "Number in the stream"),
  mseq = ProtoField.uint64("weirbulk.mseq", "Message"),
  handle = ProtoField.uint64("weirbulk.handle", "Rendezvous transfer handle", base.HEX),
  offset = ProtoField.uint64("weirbulk.offset", "Offset"),
  total_len = ProtoField.uint64("weirbulk.total_len", "Length of the message"),
  len = ProtoField.uint32("weirbulk.len", "Length"),
  msgs_limit = ProtoField.uint32("weirbulk.msgs_limit", "Credit, messages, from the start"),
  bytes_limit = ProtoField.uint64("weirbulk.bytes_limit", "Credit, bytes, from the start"),
  read = ProtoField.uint64("weirbulk.read", "Bytes of complete records read of it"),
  tell = ProtoField.bool("weirbulk.tell", "Wants to know when read", 32, nil, 0x01),
  crc = ProtoField.uint32("weirbulk.crc", "CRC32C", base.HEX),
  payload = ProtoField.bytes("weirbulk.payload", "Payload"),
}
local bulk_fields = {}
for _, field in pairs(l) do bulk_fields[#bulk_fields + 1] = field end
bulk.fields = bulk_fields

local no_record = ProtoExpert.new("weirbulk.malformed", "Does not follow the layout", expert.group.MALFORMED, expert.severity.ERROR)
bulk.experts = { no_record }

local function is_greeting(buf, at)
  return buf:len() - at >= #MAGIC and buf(at, #MAGIC):string() == MAGIC
end

-- Length of what begins at `at`, of which the first 40 bytes are there; nil where no record can begin.
local function record_length(buf, at)
  if is_greeting(buf, at) then return GREETING_BYTES end
  local kind, envelope, len = buf(at, 1):uint(), buf(at + 1, 1):uint(), buf(at + 32, 4):le_uint()
  if not RECORDS[kind] or envelope > MAX_ENVELOPE or len == 0 or len > MAX_RECORD then return nil end
  return RECORD_HEAD_BYTES + envelope + len
end

local function dissect_greeting(buf, tree)
  tree:add(l.version, buf(8, 1))
  tree:add_le(l.number, buf(12, 4))
  tree:add_le(l.association, buf(16, 8))
  tree:add(l.mac, buf(24, MAC_BYTES))
  return "greeting of bulk connection " .. buf(12, 4):le_uint()
end

local function dissect_record(buf, tree)
  local kind, envelope, len = buf(0, 1):uint(), buf(1, 1):uint(), buf(32, 4):le_uint()
  local offset, total = buf(16, 8):le_uint64(), buf(24, 8):le_uint64()
  tree:add(l.kind, buf(0, 1))
  tree:add(l.envelope_len, buf(1, 1))
  tree:add_le(l.stream, buf(2, 2))
  tree:add_le(l.sseq, buf(4, 4))
  tree:add_le(kind == 1 and l.mseq or l.handle, buf(8, 8))
  tree:add_le(l.offset, buf(16, 8))
  tree:add_le(l.total_len, buf(24, 8))
  tree:add_le(l.len, buf(32, 4))
  tree:add_le(l.msgs_limit, buf(36, 4))
  tree:add_le(l.bytes_limit, buf(40, 8))
  tree:add_le(l.read, buf(48, 8))
  tree:add_le(l.tell, buf(56, 4))
  tree:add_le(l.crc, buf(60, 4))
  local name = envelope > 0 and " " .. dissect_envelope(buf, RECORD_HEAD_BYTES, envelope, tree) or ""
  tree:add(l.payload, buf(RECORD_HEAD_BYTES + envelope, len))
  local plain = envelope == 0 and buf(2, 2):le_uint() == 0 and buf(4, 4):le_uint() == 0 and total == UInt64(0)
  local whole = kind == 1 and offset + UInt64(len) <= total or kind == 2 and plain
  if not whole or buf(56, 4):le_uint() > 1 then tree:add_proto_expert_info(no_record) end
  local what = kind == 1 and "message " .. tostring(buf(8, 8):le_uint64()) or "rendezvous transfer 0x" .. buf(8, 8):le_uint64():tohex()
  return string.format("record of %s%s %s+%d", what, name, tostring(offset), len)
end

local function dissect_one(buf, pinfo, root)
  local tree = root:add(bulk, buf())
  local text = "?"
  if record_length(buf, 0) ~= buf:len() then
    tree:add_proto_expert_info(no_record, "Neither a greeting nor a record")
  elseif is_greeting(buf, 0) then
    text = dissect_greeting(buf, tree)
  else
    text = dissect_record(buf, tree)
  end
  pinfo.cols.protocol = "Weir bulk connection"
  pinfo.cols.info:append(" [" .. text .. "]")
  tree:append_text(", " .. text)
  return buf:len()
end

local function dissect_bulk(buf, _, root)
  -- What is no record takes the rest: where the next one begins nobody knows.
  dissect_tcp_pdus(buf, root, GREETING_BYTES, function(all, _, at) return record_length(all, at) or math.max(all:len() - at, GREETING_BYTES) end, dissect_one)
  return buf:len()
end

bulk.dissector = dissect_bulk
bulk:register_heuristic("tcp", function(buf, pinfo, root)
  if not is_greeting(buf, 0) then return false end
  pinfo.conversation = bulk
  -- Not through `bulk.dissector`: two dissectors deep nobody may ask for more bytes.
  dissect_bulk(buf, pinfo, root)
  return true
end)
DissectorTable.get("tcp.port"):add_for_decode_as(bulk)

-- SCTP: its packets, which Wireshark knows, in Weir's datagrams; Weir's records in it by their payload protocol identifiers.

local record = Proto("weirsctp", "Weir record by SCTP")

local PORT_BASE, PPID_BASE, RECORD_KINDS = 0xc000, 0x57450000, {
  "HELLO", "WHOLE", "CONTROL", "MESSAGE", "RNDV", [8] = "CREDIT", [9] = "GRANT", [10] = "ABORT", [12] = "ACK",
}
-- What stands behind the 16 bytes that all but HELLO begin with, at least.
local RECORD_LEAST = { 24, 12, 8, 32, 24, [8] = 16, [9] = 16, [10] = 16, [12] = 0 }

local r = {
  kind = ProtoField.uint16("weirsctp.kind", "Kind", base.DEC, RECORD_KINDS),
  read = ProtoField.uint64("weirsctp.read", "Messages read of this stream"),
  tell = ProtoField.bool("weirsctp.tell", "Wants to know when read", 8, nil, 0x01),
  version = ProtoField.uint8("weirsctp.version", "Version"),
  association = ProtoField.uint64("weirsctp.association", "Receiver's association", base.HEX),
  mac = ProtoField.bytes("weirsctp.mac", "MAC"),
  stream = ProtoField.uint16("weirsctp.stream", "Stream"),
  sseq = ProtoField.uint32("weirsctp.sseq", "Number in the stream"),
  mseq = ProtoField.uint64("weirsctp.mseq", "Message"),
  total_len = ProtoField.uint32("weirsctp.total_len", "Length of the message"),
  handle = ProtoField.uint64("weirsctp.handle", "Rendezvous transfer handle", base.HEX),
  offset = ProtoField.uint64("weirsctp.offset", "Offset"),
  payload = ProtoField.bytes("weirsctp.payload", "Payload"),
  msgs_limit = ProtoField.uint64("weirsctp.msgs_limit", "Messages, from the start"),
  bytes_limit = ProtoField.uint64("weirsctp.bytes_limit", "Bytes, from the start"),
  limit = ProtoField.uint64("weirsctp.limit", "Granted up to"),
  code = ProtoField.uint64("weirsctp.code", "Code"),
  of = ProtoField.uint16("weirsctp.ack.stream", "Of stream"),
  of_read = ProtoField.uint64("weirsctp.ack.read", "Messages read of it"),
}
local record_fields = {}
for _, field in pairs(r) do record_fields[#record_fields + 1] = field end
record.fields = record_fields

local bad_record = ProtoExpert.new("weirsctp.malformed", "Does not follow the layout", expert.group.MALFORMED, expert.severity.ERROR)
record.experts = { bad_record }

-- One function a kind: adds the fields of what stands at `at`, and returns whether its length is right.
local dissect_record_of = {}

local function envelope_and_payload(buf, at, envelope, tree)
  local last = buf:len()
  if envelope > last - at then return false end
  if envelope > 0 then dissect_envelope(buf, at, envelope, tree) end
  if at + envelope < last then tree:add(r.payload, buf(at + envelope, last - at - envelope)) end
  return true
end

dissect_record_of[2] = function(buf, at, tree)
  tree:add_le(r.stream, buf(at, 2))
  tree:add_le(r.sseq, buf(at + 4, 4))
  tree:add(r.mseq, buf(at + 8, 4), UInt64(buf(at + 8, 4):le_uint()))
  return envelope_and_payload(buf, at + 12, buf(at + 2, 2):le_uint(), tree)
end

dissect_record_of[3] = function(buf, at, tree)
  tree:add(r.mseq, buf(at, 4), UInt64(buf(at, 4):le_uint()))
  return envelope_and_payload(buf, at + 8, buf(at + 4, 2):le_uint(), tree)
end

dissect_record_of[4] = function(buf, at, tree)
  tree:add_le(r.stream, buf(at, 2))
  tree:add_le(r.sseq, buf(at + 4, 4))
  tree:add_le(r.mseq, buf(at + 8, 8))
  tree:add_le(r.total_len, buf(at + 16, 4))
  tree:add(r.offset, buf(at + 20, 4), UInt64(buf(at + 20, 4):le_uint()))
  local envelope = buf(at + 2, 2):le_uint()
  return at + 32 + envelope + buf(at + 24, 4):le_uint() == buf:len() and envelope_and_payload(buf, at + 32, envelope, tree)
end

dissect_record_of[5] = function(buf, at, tree)
  tree:add_le(r.handle, buf(at, 8))
  tree:add_le(r.offset, buf(at + 8, 8))
  return envelope_and_payload(buf, at + 24, 0, tree)
end

local function two_words(first, second)
  return function(buf, at, tree)
    tree:add_le(first, buf(at, 8))
    tree:add_le(second, buf(at + 8, 8))
    return at + 16 == buf:len()
  end
end
dissect_record_of[8] = two_words(r.msgs_limit, r.bytes_limit)
dissect_record_of[9] = two_words(r.handle, r.limit)
dissect_record_of[10] = two_words(r.handle, r.code)

dissect_record_of[12] = function(buf, at, tree)
  while at + 16 <= buf:len() do
    tree:add_le(r.of, buf(at, 2))
    tree:add_le(r.of_read, buf(at + 8, 8))
    at = at + 16
  end
  return at == buf:len()
end

local function dissect_hello(buf, tree)
  if buf:len() ~= 40 or buf(0, 8):string() ~= "WEIRSCTP" then return false end
  tree:add(r.version, buf(8, 1))
  tree:add_le(r.association, buf(16, 8))
  tree:add(r.mac, buf(24, MAC_BYTES))
  return true
end

local function dissect_sctp_record(kind, buf, pinfo, root)
  local tree = root:add(record, buf())
  tree:add(r.kind, kind):set_generated()
  local good
  if kind == 1 then
    good = dissect_hello(buf, tree)
  elseif buf:len() >= 16 + RECORD_LEAST[kind] then
    tree:add_le(r.read, buf(0, 8))
    tree:add(r.tell, buf(8, 1))
    good = dissect_record_of[kind](buf, 16, tree) and buf(8, 1):uint() <= 1 and buf(9, 7):bytes() == ByteArray.new("00000000000000")
  end
  if not good then tree:add_proto_expert_info(bad_record) end
  pinfo.cols.protocol = "Weir by SCTP"
  pinfo.cols.info:append(" [" .. RECORD_KINDS[kind] .. "]")
  tree:append_text(", " .. RECORD_KINDS[kind])
  return buf:len()
end

function record.dissector() return 0 end
for kind, name in pairs(RECORD_KINDS) do
  local one = Proto("weirsctp_" .. name:lower(), "Weir record by SCTP: " .. name)
  function one.dissector(buf, pinfo, root) return dissect_sctp_record(kind, buf, pinfo, root) end
  DissectorTable.get("sctp.ppi"):add(PPID_BASE + kind, one)
end

-- Both ports as Weir chooses them, and chunks that fill the datagram: the checksum is for Wireshark's own dissector to look at.
local function looks_like_sctp(buf)
  local len = buf:len()
  if len < 16 or buf(0, 2):uint() < PORT_BASE or buf(2, 2):uint() < PORT_BASE then return false end
  local at = 12
  while at < len do
    if len - at < 4 then return false end
    local n = buf(at + 2, 2):uint()
    if n < 4 or at + n > len then return false end
    at = at + math.ceil(n / 4) * 4
  end
  return at == len
end

local sctp = Dissector.get("sctp")
record:register_heuristic("udp", function(buf, pinfo, root)
  if not looks_like_sctp(buf) then return false end
  sctp:call(buf, pinfo, root)
  return true
end)
