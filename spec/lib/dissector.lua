-- qrnic: Wireshark dissector of the bus interface of a capture
--
-- spec/generate puts the tables of the hardware contract in front of this file. Packets of link type USER0 are TLPs of
-- PCI Express. The comment of a packet states the purpose of the access, which selects the structure of the data. A
-- completion is decoded when the last data of its request have arrived.
--
-- SPDX-License-Identifier: GPL-2.0-or-later

local qrnic = Proto("qrnic", "qrnic bus")

local TLP_TYPES = {
    [0x00] = "MRd", [0x20] = "MRd", [0x40] = "MWr", [0x60] = "MWr", [0x04] = "CfgRd0", [0x44] = "CfgWr0",
    [0x0a] = "Cpl", [0x4a] = "CplD", [0x4c] = "FetchAdd", [0x6c] = "FetchAdd", [0x4e] = "CAS", [0x6e] = "CAS",
}
local COMPLETION_STATUS = { [0] = "Successful Completion", [1] = "Unsupported Request", [2] = "Request Retry", [4] = "Completer Abort" }
local CONFIG_NAMES = {
    [0x00] = "Vendor ID, Device ID", [0x04] = "Command, Status", [0x08] = "Revision, Class", [0x0c] = "Header Type",
    [0x10] = "BAR 0", [0x14] = "BAR 1", [0x18] = "BAR 2", [0x1c] = "BAR 3", [0x20] = "BAR 4", [0x24] = "BAR 5",
    [0x2c] = "Subsystem", [0x30] = "Expansion ROM", [0x34] = "Capabilities Pointer", [0x3c] = "Interrupt",
}
local DOORBELLS = {
    [constants.DB_SQ] = "SQ doorbell", [constants.DB_RQ] = "RQ doorbell", [constants.DB_SRQ] = "SRQ doorbell",
    [constants.DB_CQ_ARM] = "CQ arm", [constants.DB_EQ] = "EQ doorbell", [constants.DB_DIRECT] = "direct doorbell",
}
-- Structure of the data of each purpose, or "" if the purpose has no structure or several
local USES = {
    ["record"] = "queue_record", ["cq-record"] = "cq_record", ["cqe"] = "cqe", ["eqe"] = "eqe", ["command"] = "cmd_entry",
    ["tag-op"] = "tag_op", ["wqe"] = "", ["receive-wqe"] = "", ["page-list"] = "", ["mailbox"] = "", ["context"] = "", ["data"] = "",
}
-- Offset of the flags that select between cqe and cqe_tag
local TAGGED_OFFSET
for _, member in ipairs(structs.cqe.members) do
    TAGGED_OFFSET = member.name == "tagged" and member.offset or TAGGED_OFFSET
end
-- Largest value of each number in a comment
local NUMBERS = {
    object = 0xffffffff, index = 0xffffffff, from = 0xffffffff, of = 0xffffffff, qp = 0xffffff, type = 0xff, wqe = 0xffffffff,
    psn = 0xffffff, bar = 5, offset = 0xffffffffffff, vector = 0xffff,
}

-- Fields of a packet

local f = {
    type = ProtoField.string("qrnic.tlp", "TLP"),
    requester = ProtoField.uint16("qrnic.requester", "Requester ID", base.HEX),
    completer = ProtoField.uint16("qrnic.completer", "Completer ID", base.HEX),
    tag = ProtoField.uint8("qrnic.tag", "Tag"),
    address = ProtoField.uint64("qrnic.address", "Address", base.HEX),
    bytes = ProtoField.uint32("qrnic.bytes", "Bytes"),
    status = ProtoField.uint8("qrnic.completion_status", "Completion status", base.DEC, COMPLETION_STATUS),
    remaining = ProtoField.uint16("qrnic.byte_count", "Byte Count"),
    data = ProtoField.bytes("qrnic.data", "Data"),
    use = ProtoField.string("qrnic.use", "Purpose"),
    object = ProtoField.uint32("qrnic.object", "Queue"),
    index = ProtoField.uint32("qrnic.index", "Index"),
    qp = ProtoField.uint32("qrnic.qp", "QP"),
    wqe = ProtoField.uint32("qrnic.wqe", "WQE"),
    psn = ProtoField.uint32("qrnic.psn", "PSN"),
    operation = ProtoField.string("qrnic.operation", "Operation (function, QP, WQE)"),
    bar = ProtoField.uint8("qrnic.bar", "BAR"),
    offset = ProtoField.uint64("qrnic.offset", "Offset", base.HEX),
    page = ProtoField.uint32("qrnic.page", "Doorbell page"),
    name = ProtoField.string("qrnic.name", "Name"),
    vector = ProtoField.uint32("qrnic.vector", "Vector"),
    request = ProtoField.framenum("qrnic.request_in", "Request in", base.NONE),
    entry = ProtoField.uint64("qrnic.page_list.entry", "Entry", base.HEX),
}
-- One field of the generic kind for each member of the contract: qrnic.<structure>.<member>
local member_fields, all_fields = {}, {}
for _, field in pairs(f) do
    all_fields[#all_fields + 1] = field
end

local function member_field(key, name, type, values)
    if member_fields[key] then
        return member_fields[key]
    end
    local field
    name = key:match("^qrnic%.[^.]+%.(.*)$") or name
    if type == "bytes" then
        field = ProtoField.bytes(key, name)
    elseif type:sub(3) == "64" then
        field = ProtoField.uint64(key, name, base.HEX)
    elseif values then
        field = ProtoField.uint32(key, name, base.DEC, values)
    else
        field = ProtoField.uint32(key, name, base.DEC_HEX)
    end
    member_fields[key] = field
    all_fields[#all_fields + 1] = field
    return field
end

local function each_member(structure, prefix, offset, visit)
    for _, member in ipairs(structs[structure].members) do
        if member.struct then
            each_member(member.struct, prefix .. "." .. member.name, offset + member.offset, visit)
        else
            visit(prefix, offset + member.offset, member)
        end
    end
end

-- Wireshark needs all fields before the first packet.
local function register_members(prefix, _, member)
    if member.fields then
        for _, field in ipairs(member.fields) do
            member_field(prefix .. "." .. field.name, field.name, "u32", field.enum and enums[field.enum])
        end
    else
        member_field(prefix .. "." .. member.name, member.name, member.type, member.enum and enums[member.enum])
    end
end
for name, _ in pairs(structs) do
    each_member(name, "qrnic." .. name, 0, register_members)
end
for _, register in pairs(registers) do
    register_members("qrnic.register." .. register.name:lower(), 0, { name = "value", type = "u32" })
    if register.fields then
        register_members("qrnic.register." .. register.name:lower(), 0, register)
    end
end
qrnic.fields = all_fields

local malformed = ProtoExpert.new("qrnic.truncated", "The packet is shorter than its header states", expert.group.MALFORMED, expert.severity.ERROR)
local no_comment = ProtoExpert.new("qrnic.no_comment", "The packet has no comment of a qrnic capture of this version",
    expert.group.UNDECODED, expert.severity.WARN)
local refused = ProtoExpert.new("qrnic.unsupported_request", "The access failed: Unsupported Request", expert.group.RESPONSE_CODE, expert.severity.WARN)
local other_version = ProtoExpert.new("qrnic.other_version", "The capture is of another version of the hardware interface",
    expert.group.UNDECODED, expert.severity.WARN)
qrnic.experts = { malformed, no_comment, refused, other_version }

-- Structures

local function flag_names(kind, value)
    local names = {}
    for _, flag in ipairs(flags[kind]) do
        if math.floor(value / 2 ^ flag.bit) % 2 == 1 then
            names[#names + 1] = flag.name
        end
    end
    return #names > 0 and " (" .. table.concat(names, " ") .. ")" or ""
end

local function extract(value, high, low)
    return math.floor(value / 2 ^ low) % 2 ^ (high - low + 1)
end

local function number_of(range, type)
    if range:len() == 8 then
        return range:le_uint64():tonumber()
    end
    return type:sub(1, 2) == "be" and range:uint() or range:le_uint()
end

local function show_number(tree, key, range, value, member)
    local item = tree:add(member_fields[key], range, value)
    if member.flags then
        item:append_text(flag_names(member.flags, value))
    end
    return item
end

-- Shows the members of a structure whose first byte in the buffer is byte "from" of the structure.
local function show_struct(tree, tvb, structure, from)
    local branch = tree:add(qrnic, tvb(), structure)
    each_member(structure, "qrnic." .. structure, 0, function(prefix, offset, member)
        local at, size = offset - from, member.size
        if at < 0 or at + size > tvb:len() or member.name:sub(1, 4) == "rsvd" then
            return
        end
        local range, key = tvb(at, size), prefix .. "." .. member.name
        if member.fields then
            local value = number_of(range, member.type)
            for _, field in ipairs(member.fields) do
                if field.name:sub(1, 4) ~= "rsvd" then
                    show_number(branch, prefix .. "." .. field.name, range, extract(value, field.high, field.low), field)
                end
            end
        elseif member.type == "bytes" then
            branch:add(member_fields[key], range)
        elseif size == 8 then
            branch:add(member_fields[key], range, member.type:sub(1, 2) == "be" and range:uint64() or range:le_uint64())
        else
            show_number(branch, key, range, number_of(range, member.type), member)
        end
    end)
    return branch
end

local function name_of(enum, value)
    return enums[enum][value] or string.format("%d", value)
end

-- Shows "count" segments of one kind, and returns the offset after them.
local function show_segments(tree, tvb, at, structure, count)
    local size = structs[structure].size
    for _ = 1, count do
        if at + size > tvb:len() then
            break
        end
        show_struct(tree, tvb(at, size):tvb(), structure, 0)
        at = at + size
    end
    return at
end

local ADDRESS_SEGMENTS = { UD = "datagram_seg", GSI = "datagram_seg", XRC_INI = "xrc_seg", DC_INI = "dynamic_seg", RAW_PACKET = "eth_seg" }
local OPERATION_SEGMENTS = {
    RDMA_WRITE = { "remote_seg" }, RDMA_WRITE_IMM = { "remote_seg" }, RDMA_READ = { "remote_seg" },
    ATOMIC_CMP_SWAP = { "remote_seg", "atomic_seg" }, ATOMIC_FETCH_ADD = { "remote_seg", "atomic_seg" },
    ATOMIC_WRITE = { "remote_seg", "atomic_seg" }, FLUSH = { "remote_seg", "flush_seg" }, BIND_MW = { "bind_seg" },
    REG_MR = { "reg_seg" }, REG_INDIRECT = { "indirect_seg" },
}
local LOCAL_OPERATIONS = { NOP = true, BIND_MW = true, LOCAL_INV = true, REG_MR = true, REG_INDIRECT = true }

-- Shows one send WQE at offset "at", and returns its name and the offset of the next.
local function show_wqe(tree, tvb, at, qp_type)
    local word = tvb(at, 4):le_uint()
    local opcode, wqe_flags, segments = name_of("wqe_opcode", word % 256), extract(word, 15, 8), extract(word, 21, 16)
    local last = math.min(at + math.max(segments, 1) * constants.SEGMENT_SIZE, tvb:len())
    local next_wqe = at + math.max(1, math.ceil(segments * constants.SEGMENT_SIZE / constants.WQEBB_SIZE)) * constants.WQEBB_SIZE
    local inline = tvb(at + 12, 4):le_uint()
    local branch = tree:add(qrnic, tvb(at, last - at), "WQE " .. opcode)
    local whole = tvb(0, last):tvb()
    local offset = show_segments(branch, whole, at, "sq_ctrl", 1)
    local address = ADDRESS_SEGMENTS[qp_type]
    if address and not LOCAL_OPERATIONS[opcode] then
        offset = show_segments(branch, whole, offset, address, 1)
    end
    for _, structure in ipairs(OPERATION_SEGMENTS[opcode] or {}) do
        offset = show_segments(branch, whole, offset, structure, 1)
    end
    if #flag_names("wqe_flag", wqe_flags) > 0 and flag_names("wqe_flag", wqe_flags):find("INLINE") then
        local bytes = math.min(inline, whole:len() - offset)
        if bytes > 0 then
            branch:add(f.data, whole(offset, bytes)):set_text(string.format("Inline data: %d bytes", bytes))
        end
    else
        show_segments(branch, whole, offset, "data_seg", 100)
    end
    return opcode, next_wqe
end

local function show_wqes(tree, tvb, qp_type)
    local names, at = {}, 0
    while at + constants.WQEBB_SIZE <= tvb:len() do
        names[#names + 1], at = show_wqe(tree, tvb, at, qp_type)
    end
    return table.concat(names, ", ")
end

local function show_receive_wqes(tree, tvb)
    -- The stride of the ring is unknown here, so only the first WQE is shown.
    local count = tvb:len() >= 16 and tvb(0, 4):le_uint() or 0
    local at = show_segments(tree, tvb, 0, "recv_ctrl", 1)
    show_segments(tree, tvb, at, "data_seg", math.min(count, 100))
    return count .. " data segments"
end

local function show_page_list(tree, tvb)
    for at = 0, tvb:len() - 8, 8 do
        tree:add_le(f.entry, tvb(at, 8))
    end
    return math.floor(tvb:len() / 8) .. " entries"
end

-- Wireshark dissects a packet several times, the first time perhaps without its comment. "seen" has the packets whose
-- part in the tables below is known. "fresh" is true while a packet is dissected with its comment for the first time.
local seen, fresh = {}, false

-- State of each device of the file, by its interface. mergecap joins files of devices that use the same tags and numbers.
local devices = {}
local device

-- Returns the state of a device before its first packet.
local function new_device()
    return {
        accesses = {},      -- bytes so far of accesses that consist of several requests
        commands = {},      -- opcode of the command at each index of the command ring
        cqes = {},          -- first part of each CQE whose control word is not written yet
        qp_types = {},      -- type of each queue pair, as far as comments have named it
        windows = {},       -- direct WQEs of each page, as far as they are written: the data at each offset
        open_requests = {}, -- requests by requester and tag
    }
end

-- For each frame that ends an access of several requests: the whole data
local whole_accesses = {}

-- Returns the data of the whole access as a buffer, or nil while parts are missing.
local function whole_access(pinfo, tvb, context)
    if not context.of or not context.from then
        return tvb
    end
    if fresh then
        local key = table.concat({ context.use or "", context.object or 0, context.index or 0, context.qp or 0 }, ":")
        if context.from == 0 or not device.accesses[key] then
            device.accesses[key] = ByteArray.new()
        end
        device.accesses[key]:append(tvb:range():bytes())
        if device.accesses[key]:len() == context.of then
            whole_accesses[pinfo.number] = device.accesses[key]
            device.accesses[key] = nil
        end
    end
    return whole_accesses[pinfo.number] and whole_accesses[pinfo.number]:tvb("DMA access")
end

-- Opcode of the command of each frame with a mailbox, whose structure it selects
local mailboxes = {}

local function show_mailbox(pinfo, tree, tvb, context, writes)
    if fresh then
        mailboxes[pinfo.number] = device.commands[context.index or 0]
    end
    local opcode = mailboxes[pinfo.number]
    local structure = opcode and (writes and command_outputs or command_inputs)[opcode]
    if structure and structs[structure] then
        show_struct(tree, tvb, structure, 0)
    else
        tree:add(f.data, tvb())
    end
    return (opcode and name_of("cmd_opcode", opcode) or "unknown command") .. (writes and " output" or " input")
end

local function has_flag(kind, value, name)
    return (flag_names(kind, value) .. " "):find("[( ]" .. name .. "[) ]") ~= nil
end

-- Shows a CQE when its control word is written, because the flags in the control word select the layout.
local function show_cqe(pinfo, tree, tvb, from, context)
    local key = (context.object or 0) .. ":" .. (context.index or 0)
    if from + tvb:len() < structs.cqe.size then
        if fresh then
            device.cqes[key] = from == 0 and tvb:range():bytes() or nil
        end
        tree:add(f.data, tvb())
        return "first part"
    elseif from > 0 and fresh and device.cqes[key] and device.cqes[key]:len() == from then
        device.cqes[key]:append(tvb:range():bytes())
        whole_accesses[pinfo.number], device.cqes[key] = device.cqes[key], nil
    end
    if from > 0 and whole_accesses[pinfo.number] then
        tvb, from = whole_accesses[pinfo.number]:tvb("CQE"), 0
    end
    local word, structure = tvb(tvb:len() - 4, 4):le_uint(), "cqe"
    if has_flag("cqe_flag", extract(word, 23, 16), "INLINE") then
        structure = "cqe_inline"
    elseif from == 0 and has_flag("cqe_tagged", tvb(TAGGED_OFFSET, 1):uint(), "MATCH") then
        structure = "cqe_tag"
    end
    show_struct(tree, tvb, structure, from)
    return name_of("wc_status", word % 256) .. " " .. name_of("cqe_opcode", extract(word, 15, 8))
end

-- Shows the data of a DMA access at "address", and returns a text for the column Info.
local function show_data(pinfo, tree, part, context, address, writes)
    local use = context.use
    local tvb = whole_access(pinfo, part, context)
    if not tvb then
        tree:add(f.data, part())
        return string.format("bytes %d to %d of %d", context.from, context.from + part:len() - 1, context.of)
    end
    if use == "wqe" then
        return show_wqes(tree, tvb, context.type and name_of("qp_type", context.type))
    elseif use == "receive-wqe" then
        return show_receive_wqes(tree, tvb)
    elseif use == "page-list" then
        return show_page_list(tree, tvb)
    elseif use == "mailbox" then
        return show_mailbox(pinfo, tree, tvb, context, writes)
    elseif (USES[use] or "") == "" then
        tree:add(f.data, tvb())
        return ""
    end
    local structure = USES[use]
    local from = address:lower() % structs[structure].size
    if use == "command" and not writes and tvb:len() >= 4 then
        device.commands[context.index or 0] = tvb(0, 2):le_uint()
        show_struct(tree, tvb, structure, from)
        return name_of("cmd_opcode", tvb(0, 2):le_uint())
    elseif use == "cqe" then
        return show_cqe(pinfo, tree, tvb, from, context)
    elseif use == "eqe" and from + tvb:len() == structs.eqe.size then
        show_struct(tree, tvb, structure, from)
        return ""
    end
    show_struct(tree, tvb, structure, from)
    return from > 0 and "second part" or ""
end

-- Packets

local comment_field = Field.new("frame.comment")
local interface_field = Field.new("frame.interface_name")
local interface_number = Field.new("frame.interface_id")
local description_field = Field.new("frame.interface_description")

-- Adds an expert item if the interface has a version that this dissector does not know. Minor versions only add.
local function check_version(tree)
    local description = description_field()
    local major, minor = (description and tostring(description) or ""):match("^qrnic hardware interface (%d+)%.(%d+)$")
    major, minor = tonumber(major), tonumber(minor)
    if major and (major ~= constants.version_major or minor > constants.version_minor) then
        tree:add_proto_expert_info(other_version, string.format("The capture is of hardware interface %d.%d, this dissector of %d.%d: " ..
            "make the dissector with the device's version", major, minor, constants.version_major, constants.version_minor))
    end
end

-- Returns the members of the comment: numbers for all but "use". A comment of another program may have any text, so
-- the members of a comment that is not of this version are ignored.
local function context_of()
    local comment = comment_field()
    if not comment then
        return nil
    end
    local text = tostring(comment)
    local context = { config = text:match("^config ") ~= nil, interrupt = text:match("^interrupt ") ~= nil }
    for key, value in text:gmatch("(%w+)=(%S+)") do
        local number = (value:match("^%d+$") or value:match("^0x%x+$")) and tonumber(value)
        if key == "use" and USES[value] then
            context.use = value
        elseif NUMBERS[key] and number and number <= NUMBERS[key] then
            context[key] = number
        end
    end
    if not (context.use or context.interrupt or ((context.bar or context.config) and context.offset)) then
        return nil
    end
    return context
end

local function function_name()
    local interface = interface_field()
    return interface and tostring(interface):gsub("%-bus$", "") or "?"
end

local function show_context(tree, context)
    for _, key in ipairs({ "use", "object", "index", "qp", "wqe", "psn", "bar", "vector" }) do
        if context[key] then
            tree:add(f[key], context[key]):set_generated()
        end
    end
    if context.offset then
        tree:add(f.offset, UInt64(context.offset)):set_generated()
    end
    if context.qp and context.wqe then
        tree:add(f.operation, string.format("%s:%d:%d", function_name(), context.qp, context.wqe)):set_generated()
    end
end

local function show_register(tree, range, context)
    local register = registers[context.offset]
    if not register then
        return string.format("register 0x%x", context.offset)
    end
    tree:add(f.name, register.name):set_generated()
    if range and range:len() >= 4 then
        local prefix, value = "qrnic.register." .. register.name:lower(), range(0, 4):le_uint()
        tree:add(member_fields[prefix .. ".value"], range, value)
        for _, field in ipairs(register.fields or {}) do
            show_number(tree, prefix .. "." .. field.name, range, extract(value, field.high, field.low), field)
        end
        return string.format("%s = 0x%x", register.name, value)
    end
    return register.name
end

-- Returns the direct WQE in the window of a page, or nil if a part of it is missing.
local function window_wqe(pinfo, page, bytes)
    if fresh then
        local window, at = device.windows[page] or {}, 0
        local wqe = ByteArray.new()
        device.windows[page] = nil
        while at < bytes and window[at] do
            wqe:append(window[at])
            at = at + window[at]:len()
        end
        whole_accesses[pinfo.number] = at == bytes and bytes > 0 and wqe or nil
    end
    return whole_accesses[pinfo.number] and whole_accesses[pinfo.number]:tvb("Direct WQE")
end

local function show_doorbell(pinfo, tree, range, context)
    local page, offset = math.floor(context.offset / constants.DB_PAGE_SIZE), context.offset % constants.DB_PAGE_SIZE
    local window_at = offset - constants.DB_WINDOW
    tree:add(f.page, page):set_generated()
    if window_at >= 0 and window_at < constants.DB_WINDOW_SIZE then
        if range then
            tree:add(f.data, range)
            if fresh then
                device.windows[page] = device.windows[page] or {}
                device.windows[page][window_at] = range:bytes()
            end
        end
        return string.format("page %d, direct WQE, byte %d", page, window_at)
    end
    local name = DOORBELLS[offset] or "no doorbell"
    if range and range:len() == 8 and DOORBELLS[offset] then
        show_struct(tree, range:tvb(), offset == constants.DB_EQ and "eq_doorbell" or "doorbell", 0)
        if offset == constants.DB_DIRECT then
            local word = range(0, 4):le_uint()
            local wqe = window_wqe(pinfo, page, extract(word, 27, 24) * constants.WQEBB_SIZE)
            local type = device.qp_types[word % 0x1000000]
            if wqe then
                name = name .. " (" .. show_wqes(tree, wqe, type and name_of("qp_type", type)) .. ")"
            end
        end
        return string.format("page %d, %s %d, index %d", page, name, range(0, 4):le_uint() % 0x1000000, range(4, 4):le_uint())
    end
    return string.format("page %d, %s", page, name)
end

-- Shows an access of the guest, and returns a text for the column Info.
local function show_guest_access(pinfo, tree, range, context)
    if context.config then
        local offset = context.offset - context.offset % 4
        local name = CONFIG_NAMES[offset] or "capability"
        tree:add(f.name, name):set_generated()
        return string.format("config 0x%x (%s)", context.offset, name)
    elseif context.bar == constants.BAR_CONTROL then
        return show_register(tree, range, context)
    elseif context.bar == constants.BAR_DOORBELL then
        return show_doorbell(pinfo, tree, range, context)
    end
    return string.format("BAR %d offset 0x%x", context.bar, context.offset)
end

-- For each frame of a completion its request and, for the last one, the whole data
local completions = {}

function qrnic.init()
    devices, completions, mailboxes, whole_accesses, seen = {}, {}, {}, {}, {}
end

-- Remembers a read request.
local function open_request(pinfo, id, tag, address, bytes)
    if fresh then
        device.open_requests[id .. ":" .. tag] = { frame = pinfo.number, address = address, bytes = bytes, data = ByteArray.new() }
    end
end

-- Adds the data of a completion to its request, and returns the request and all its data if it is complete.
local function complete(pinfo, id, tag, range, remaining)
    if fresh then
        local request = device.open_requests[id .. ":" .. tag]
        local done
        if request and range then
            request.data:append(range:bytes())
            done = range:len() >= remaining
        end
        completions[pinfo.number] = request and { frame = request.frame, address = request.address, data = done and request.data or nil }
    end
    return completions[pinfo.number]
end

local function trimmed(tvb, head, first, last, words)
    local from, to = 0, words * 4
    for bit = 0, 3 do
        if math.floor(first / 2 ^ bit) % 2 == 1 then
            break
        end
        from = from + 1
    end
    local mask = words == 1 and first or last
    for bit = 3, 0, -1 do
        if math.floor(mask / 2 ^ bit) % 2 == 1 then
            break
        end
        to = to - 1
    end
    if head + to > tvb:len() or to <= from then
        return nil, from, math.max(0, to - from)
    end
    return tvb(head + from, to - from), from, to - from
end

local function dissect_completion(tvb, pinfo, tree, context, kind)
    local words = tvb(2, 2):uint() % 1024
    local requester, tag, low = tvb(8, 2):uint(), tvb(10, 1):uint(), tvb(11, 1):uint() % 128
    local remaining, status = tvb(6, 2):uint() % 4096, math.floor(tvb(6, 1):uint() / 32)
    tree:add(f.completer, tvb(4, 2))
    tree:add(f.requester, tvb(8, 2))
    tree:add(f.tag, tvb(10, 1))
    tree:add(f.status, tvb(6, 1), status)
    tree:add(f.remaining, tvb(6, 2), remaining)
    if status == 1 then
        tree:add_proto_expert_info(refused)
        return "Unsupported Request"
    end
    if kind == "Cpl" then
        return ""
    end
    local skip, available = low % 4, tvb:len() - 12
    local bytes = math.min(words * 4 - skip, remaining, available - skip)
    if available < words * 4 or bytes <= 0 then
        tree:add_proto_expert_info(malformed)
        return "truncated"
    end
    local range = tvb(12 + skip, bytes)
    local done = complete(pinfo, requester, tag, range, remaining)
    if done then
        tree:add(f.request, done.frame):set_generated()
    end
    if context.bar or context.config then
        return show_guest_access(pinfo, tree, range, context)
    end
    if not done or not done.data then
        return string.format("%d bytes, more follow", bytes)
    end
    local data = done.data:len() == bytes and range:tvb() or done.data:tvb("DMA read")
    return show_data(pinfo, tree, data, context, done.address, false)
end

local function dissect_request(tvb, pinfo, tree, context, kind)
    local words, first, last = tvb(2, 2):uint() % 1024, tvb(7, 1):uint() % 16, math.floor(tvb(7, 1):uint() / 16)
    local long = math.floor(tvb(0, 1):uint() / 32) % 2 == 1
    local head, address = 12, nil
    words = words == 0 and 1024 or words
    if kind:sub(1, 3) == "Cfg" then
        address = UInt64(tvb(10, 2):uint() % 0x1000)
    elseif long then
        if tvb:len() < 16 then
            tree:add_proto_expert_info(malformed)
            return "truncated"
        end
        head, address = 16, tvb(8, 8):uint64()
    else
        address = UInt64(tvb(8, 4):uint())
    end
    local reads = kind == "MRd" or kind == "CfgRd0"
    local range, from, bytes = trimmed(tvb, head, first, last, words)
    address = address + from
    tree:add(f.requester, tvb(4, 2))
    tree:add(f.tag, tvb(6, 1))
    tree:add(f.address, tvb(8, head - 8), address)
    tree:add(f.bytes, tvb(2, 2), bytes)
    if reads then
        open_request(pinfo, tvb(4, 2):uint(), tvb(6, 1):uint(), address, bytes)
        range = nil
    elseif not range then
        tree:add_proto_expert_info(malformed)
        return "truncated"
    end
    if context.bar or context.config then
        return show_guest_access(pinfo, tree, range, context)
    elseif context.interrupt then
        return string.format("MSI-X vector %d", context.vector or 0)
    elseif kind == "FetchAdd" or kind == "CAS" then
        open_request(pinfo, tvb(4, 2):uint(), tvb(6, 1):uint(), address, 8)
        tree:add(f.data, range)
        return "at 0x" .. address:tohex()
    elseif reads then
        return string.format("%d bytes at 0x%s", bytes, address:tohex())
    end
    return show_data(pinfo, tree, range:tvb(), context, address, true)
end

function qrnic.dissector(tvb, pinfo, root)
    local tree = root:add(qrnic, tvb())
    local context = context_of()
    fresh = context ~= nil and not seen[pinfo.number]
    if fresh then
        seen[pinfo.number] = true
    end
    local interface = interface_number()
    interface = interface and interface.value or 0
    devices[interface] = devices[interface] or new_device()
    device = devices[interface]
    pinfo.cols.protocol = "qrnic"
    check_version(tree)
    if tvb:len() < 12 then
        tree:add_proto_expert_info(malformed)
        pinfo.cols.info = "truncated TLP"
        return
    end
    local kind = TLP_TYPES[tvb(0, 1):uint()]
    if not kind then
        tree:add_proto_expert_info(malformed)
        pinfo.cols.info = string.format("unknown TLP type 0x%02x", tvb(0, 1):uint())
        return
    end
    tree:add(f.type, tvb(0, 1), kind)
    if not context then
        tree:add_proto_expert_info(no_comment)
        context = {}
    end
    if context.qp and context.type then
        device.qp_types[context.qp] = context.type
    end
    show_context(tree, context)
    local info
    if kind == "Cpl" or kind == "CplD" then
        info = dissect_completion(tvb, pinfo, tree, context, kind)
    else
        info = dissect_request(tvb, pinfo, tree, context, kind)
    end
    tree:append_text(", " .. kind .. " " .. info)
    pinfo.cols.info = kind .. (context.use and " " .. context.use or "") ..
        (context.use and context.object and string.format(" %d[%d]", context.object, context.index or 0) or "") ..
        (#info > 0 and ": " .. info or "") .. (context.qp and string.format(" (QP %d)", context.qp) or "")
end

DissectorTable.get("wtap_encap"):add(wtap.USER0, qrnic)
