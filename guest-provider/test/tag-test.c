// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tag-test.c: tests tag lists of SRQs. Messages of both protocols meet entries.
 * A software list predicts which entry matches, or a receiver handles
 * unexpected messages as the manual requires. Every byte is compared, including
 * the bytes around the buffers.
 *
 * The arguments are the adapter and the index of the GID. With "loop" behind
 * them the program sends until it is killed.
 */
#define _GNU_SOURCE
#include "tags.h"

#define ALL UINT64_MAX
#define TRAFFIC_MS (100 * 1000)
#define KINDS 48u
#define LONG_KINDS 8u
#define MOVING 3000u
#define MOVING_TAGS 64u
#define CANCELS 500u
#define BAD_HEADERS 7
/* Values of wr_id of work requests that the receiver posts */
#define OF_READ (1ull << 32)
#define OF_FIN (2ull << 32)
#define OF_CANCEL (1ull << 32)

/* Head and tail of the software list, or NONE */
static uint32_t first, last;
static uint32_t listed, completed, finished, unexpected, told, sent;
static uint32_t under_way[QPS];
static uint32_t slots_used;		/* Slots in use, one bit for each */
static bool sync_wanted;

/* Lists of the moving test: one queue for each kind of message */
static uint32_t stored_first[KINDS], stored_last[KINDS];
static uint32_t posted_first[KINDS], posted_last[KINDS], sequence[KINDS];

/*
 * Kinds of the buffers that are posted next; the kind of a canceled buffer is
 * appended.
 */
static uint32_t order[MOVING + CANCELS], total;

static void (*matched)(uint32_t e, uint32_t m);

static void list_append(uint32_t i)
{
	entry[i].next = NONE;
	if (first == NONE)
		first = i;
	else
		entry[last].next = i;
	last = i;
}

static void list_match(uint32_t i, uint32_t m)
{
	uint32_t at, before = NONE;

	for (at = first; at != NONE; before = at, at = entry[at].next)
		if ((message[m].tag & entry[at].mask) == entry[at].tag)
			break;
	CHECK(at == i && entry[i].state == LISTED);
	if (before == NONE)
		first = entry[i].next;
	else
		entry[before].next = entry[i].next;
	if (last == i)
		last = before;
	entry[i].state = MATCHED;
	entry[i].message = m;
}

static void data_came(uint32_t i)
{
	struct entry *e = &entry[i];
	struct message *m = &message[e->message];

	CHECK(e->state == MATCHED);
	CHECK(!memcmp(area->room + e->at, buffer + m->source, m->length));
	e->state = DONE;
	completed++;
}

static void entry_completion(const struct completion *c)
{
	uint32_t i = c->wr_id, m = c->number;

	CHECK(!c->status);
	if (c->flags & IBV_WC_TM_MATCH) {
		CHECK(m < MESSAGES && c->tag == message[m].tag);
		CHECK(c->qp_num == to[message[m].qp]->qp_num);
		matched(i, m);
		CHECK(!message[m].rendezvous || c->length == message[m].length);
	}
	if (!(c->flags & IBV_WC_TM_DATA_VALID))
		return;
	CHECK(c->length == message[entry[i].message].length);
	data_came(i);
	listed--;
}

static bool message_start(uint32_t i)
{
	struct message *m = &message[i];
	int qp = m->qp;

	if (under_way[qp] == DEPTH)
		return false;
	if (m->rendezvous) {
		if (slots_used == (1u << SLOTS) - 1)
			return false;
		m->slot = __builtin_ctz(~slots_used);
		slots_used |= 1u << m->slot;
	}
	under_way[qp]++;
	message_send(i, qp);
	sent++;
	return true;
}

/*
 * Handles the end of a read of an unexpected rendezvous, and notifies the
 * sender.
 */
static void read_ended(uint32_t i)
{
	struct message *m = &message[entry[i].message];
	struct header *h = (struct header *)m->copy;
	struct ibv_sge sge = { (uintptr_t)h, sizeof(*h), 0 };
	struct ibv_send_wr wr = {
		.wr_id = OF_FIN, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE,
	};

	data_came(i);
	h->tag.opcode = IBV_TMH_FIN;
	CHECK(!post_send(to[m->qp], &wr));
}

static void senders_look(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(send_cq, 1, &wc)) {
		CHECK(!wc.status);
		if (wc.wr_id & OF_READ)
			read_ended(wc.wr_id & ~OF_READ);
		else if (!(wc.wr_id & OF_FIN))
			under_way[message[wc.wr_id].qp]--;
	}
	while (ibv_poll_cq(fin_cq, 1, &wc)) {
		finished++;
		slots_used &= ~(1u << message[fin_taken(&wc)].slot);
	}
}

static void begin(void (*match)(uint32_t, uint32_t))
{
	first = last = NONE;
	listed = completed = finished = unexpected = told = sent = 0;
	slots_used = 0;
	sync_wanted = false;
	memset(under_way, 0, sizeof(under_way));
	memset(sequence, 0, sizeof(sequence));
	memset(stored_first, 0xff, sizeof(stored_first));
	memset(posted_first, 0xff, sizeof(posted_first));
	matched = match;
}

/* Checks that no byte behind the end of a message has changed. */
static void check_rooms(uint32_t entries)
{
	uint32_t i;

	for (i = 0; i < entries; i++)
		if (entry[i].state == DONE)
			expect_data(i, entry[i].message);
}

static void shuffle(uint32_t *what, uint32_t number, uint32_t reach)
{
	uint32_t i, j, swap;

	for (i = 0; i < number; i++) {
		j = i + random_below(number - i < reach ? number - i : reach);
		swap = what[i];
		what[i] = what[j];
		what[j] = swap;
	}
}

static uint32_t random_length(bool rendezvous)
{
	if (rendezvous)
		return 1 + random_below(16000);
	return random_below(4) ? random_below(200) : random_below(3000);
}

/*
 * Makes groups of 1 to 8 messages with the same tag, and as many entries. An
 * entry matches only this tag, or has a mask without some of the low bits.
 */
static void many_make(uint32_t *entries, uint32_t *messages)
{
	uint32_t i = 0, group = 0, size, room, j;
	uint64_t tag, mask;
	bool rendezvous;

	for (j = 0; j < MESSAGES; j++)
		entries[j] = messages[j] = j;
	shuffle(entries, MESSAGES, MESSAGES);
	shuffle(messages, MESSAGES, MESSAGES);
	while (i < MESSAGES) {
		size = 1 + random_below(8);
		rendezvous = !random_below(10);
		room = random_length(rendezvous);
		tag = ++group * 0x9e3779b97f5ull << 20 | random_below(1 << 16);
		for (j = 0; j < size && i < MESSAGES; j++, i++) {
			mask = random_below(2) ? ALL :
						 ~(uint64_t)random_below(1 << 16);
			entry_make(i, tag, mask, room + random_below(20),
				   1 + random_below(3));
			message_make(i, tag, random_below(3) ? room :
						      random_below(room + 1),
				     rendezvous);
			message[i].qp = random_below(QPS);
		}
	}
}

/*
 * Adds the entries. The ring has fewer slots than entries, and only some
 * operations are signaled, so slots must be reused.
 */
static void many_add(const uint32_t *entries)
{
	uint64_t end = now_ms() + TRAFFIC_MS;
	struct completion c;
	uint32_t i;
	int err;

	for (i = 0; i < MESSAGES;) {
		CHECK(now_ms() < end);
		err = add(entries[i], i % 7 ? 0 : IBV_OPS_SIGNALED);
		CHECK(!err || err == ENOMEM);
		if (!err)
			list_append(entries[i++]);
		while (take(&c))
			CHECK(!c.status && c.opcode == IBV_WC_TM_ADD);
	}
	listed = MESSAGES;
}

static void test_many(void)
{
	static uint32_t entries[MESSAGES], messages[MESSAGES];
	uint64_t end = now_ms() + TRAFFIC_MS;
	uint32_t next = 0, rendezvous = 0, i;
	struct completion c;

	make(MESSAGES, 256);
	begin(list_match);
	many_make(entries, messages);
	many_add(entries);
	for (i = 0; i < MESSAGES; i++)
		rendezvous += message[i].rendezvous;
	while (completed < MESSAGES || finished < rendezvous) {
		CHECK(now_ms() < end);
		while (next < MESSAGES && message_start(messages[next]))
			next++;
		senders_look();
		while (take(&c)) {
			if (c.opcode == IBV_WC_TM_ADD && !c.status)
				continue;
			CHECK(c.opcode == IBV_WC_TM_RECV);
			entry_completion(&c);
		}
	}
	CHECK(first == NONE && !listed);
	check_rooms(MESSAGES);
	nothing(0);
	unmake();
}

/*
 * Checks the choice of an entry by the device, or by the software queues. The
 * data may move much later, after the choices for other messages.
 */
static void moving_match(uint32_t i, uint32_t m)
{
	uint32_t kind = message[m].kind, at = posted_first[kind];

	CHECK(entry[i].kind == kind);
	/* Messages of a kind must match the buffers of this kind in order */
	CHECK(message[m].sequence == sequence[kind]);
	sequence[kind]++;
	/*
	 * A canceled entry may have been removed before or not, so it is
	 * skipped
	 */
	while (at != i && entry[at].state != LISTED)
		at = entry[at].next;
	CHECK(at == i && entry[i].state < SPOKEN_FOR);
	entry[i].state = MATCHED;
	entry[i].message = m;
}

/*
 * Sends an unexpected message to its buffer, which the software queues have
 * chosen.
 */
static void moving_copy(uint32_t i, uint32_t m)
{
	struct header *h = (struct header *)message[m].copy;
	struct ibv_sge sge = of_area(area->room + entry[i].at,
				     message[m].length);
	struct ibv_send_wr wr = {
		.wr_id = OF_READ | i, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
	};

	entry[i].state = MATCHED;
	if (h->tag.opcode == IBV_TMH_EAGER) {
		memcpy(area->room + entry[i].at, &h->rendezvous,
		       message[m].length);
		data_came(i);
		return;
	}
	CHECK(h->tag.opcode == IBV_TMH_RNDV);
	CHECK(be32toh(h->rendezvous.len) == message[m].length);
	wr.wr.rdma.remote_addr = be64toh(h->rendezvous.va);
	wr.wr.rdma.rkey = be32toh(h->rendezvous.rkey);
	CHECK(!post_send(to[message[m].qp], &wr));
}

static void moving_store(uint32_t m)
{
	uint32_t kind = message[m].kind;

	message[m].next = NONE;
	if (stored_first[kind] == NONE)
		stored_first[kind] = m;
	else
		message[stored_last[kind]].next = m;
	stored_last[kind] = m;
}

static void moving_unexpected(const struct completion *c)
{
	struct header *h = (struct header *)area->wqe[c->wr_id];
	uint32_t m = be32toh(h->tag.app_ctx), kind, i;

	CHECK(!c->status && c->wr_id < WQES && m < MESSAGES);
	CHECK(c->length == (message[m].rendezvous ? sizeof(*h) :
			    sizeof(h->tag) + message[m].length));
	CHECK(c->qp_num == to[message[m].qp]->qp_num && !message[m].copy);
	message[m].copy = malloc(c->length);
	CHECK(message[m].copy);
	memcpy(message[m].copy, h, c->length);
	wqe_post(c->wr_id);
	unexpected++;
	if (c->flags & IBV_WC_TM_SYNC_REQ)
		sync_wanted = true;
	kind = message[m].kind;
	for (i = posted_first[kind]; i != NONE; i = entry[i].next)
		if (entry[i].state == LISTED)
			break;
	if (i == NONE) {
		moving_store(m);
		return;
	}
	moving_match(i, m);
	entry[i].state = SPOKEN_FOR;
	told = unexpected;
	CHECK(!del_with(entry[i].handle, i, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
			told));
}

/*
 * Removes finished entries from the list of a kind. The list is short, so a
 * scan is enough.
 */
static void posted_forget(uint32_t kind)
{
	uint32_t i;

	while ((i = posted_first[kind]) != NONE &&
	       (entry[i].state >= MATCHED))
		posted_first[kind] = entry[i].next;
}

static void moving_deleted(const struct completion *c)
{
	uint32_t i = c->wr_id;

	if (c->wr_id & OF_CANCEL) {
		i = c->wr_id & ~OF_CANCEL;
		/*
		 * A message was faster than the cancel, and its completion may
		 * follow
		 */
		if (c->status == IBV_WC_TM_ERR)
			return;
		CHECK(!c->status && entry[i].state == CANCELED);
		entry[i].state = GONE;
		order[total++] = entry[i].kind;
		listed--;
		return;
	}
	/*
	 * No message can have matched this entry, because the receiver has
	 * reserved the entry for an unexpected message
	 */
	CHECK(!c->status && entry[i].state == SPOKEN_FOR);
	listed--;
	moving_copy(i, entry[i].message);
}

static void moving_look(void)
{
	struct completion c;

	while (take(&c)) {
		if (c.opcode == IBV_WC_TM_ADD || c.opcode == IBV_WC_TM_SYNC)
			CHECK(!c.status);
		else if (c.opcode == IBV_WC_TM_DEL)
			moving_deleted(&c);
		else if (c.flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID))
			entry_completion(&c);
		else
			moving_unexpected(&c);
		if (c.opcode != IBV_WC_TM_RECV &&
		    c.flags & IBV_WC_TM_SYNC_REQ)
			sync_wanted = true;
	}
}

static void moving_post(uint32_t i, uint32_t kind, bool by_flags)
{
	uint32_t m = stored_first[kind];

	entry_make(i, (uint64_t)kind << 40, kind % 2 ? ALL : ~0xffffull,
		   kind < LONG_KINDS ? 16000 : 3000, 1 + random_below(3));
	entry[i].kind = kind;
	entry[i].next = NONE;
	posted_forget(kind);
	if (posted_first[kind] == NONE)
		posted_first[kind] = i;
	else
		entry[posted_last[kind]].next = i;
	posted_last[kind] = i;
	if (m != NONE) {
		entry[i].state = LISTED;
		stored_first[kind] = message[m].next;
		moving_match(i, m);
		moving_copy(i, m);
		return;
	}
	listed++;
	if (by_flags) {
		CHECK(!add(i, IBV_OPS_SIGNALED));
		return;
	}
	told = unexpected;
	CHECK(!add_with(i, IBV_OPS_TM_SYNC, told));
}

/* Cancels a waiting entry, or tries to cancel a finished entry. */
static void moving_cancel(uint32_t i)
{
	if (entry[i].state != LISTED && entry[i].state != MATCHED &&
	    entry[i].state != DONE)
		return;
	if (entry[i].state == LISTED)
		entry[i].state = CANCELED;
	told = unexpected;
	CHECK(!del_with(entry[i].handle, OF_CANCEL | i,
			IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, told));
}

static uint32_t moving_make(void)
{
	uint32_t count[KINDS] = {}, rendezvous = 0, i, kind;
	struct message *m;

	for (i = 0; i < MOVING; i++) {
		m = &message[i];
		m->kind = kind = order[i] = random_below(KINDS);
		m->tag = (uint64_t)kind << 40 |
			 (kind % 2 ? 0 : random_below(1 << 16));
		m->rendezvous = kind < LONG_KINDS && random_below(3);
		m->length = random_length(m->rendezvous);
		m->source = random_below(BUFFER_SIZE - m->length);
		m->sequence = count[kind]++;
		m->qp = kind % QPS;
		rendezvous += m->rendezvous;
	}
	total = MOVING;
	shuffle(order, MOVING, 100);
	return rendezvous;
}

/*
 * Sends messages before or after their buffers are posted. With by_flags the
 * receiver reports unexpected messages only when flags request it, otherwise
 * with every operation.
 */
static void moving(bool by_flags)
{
	uint64_t end = now_ms() + TRAFFIC_MS;
	uint32_t next = 0, posted = 0, cancels = 0, rendezvous;

	make(MOVING_TAGS, 1024);
	begin(moving_match);
	rendezvous = moving_make();
	while (completed < MOVING || finished < rendezvous || listed) {
		CHECK(now_ms() < end);
		if (next < MOVING && random_below(2) && message_start(next))
			next++;
		if (posted < total && listed < MOVING_TAGS && random_below(2)) {
			moving_post(posted, order[posted], by_flags);
			posted++;
		}
		if (posted && cancels < CANCELS && !random_below(20)) {
			cancels++;
			moving_cancel(posted - 1 - random_below(
					posted < 100 ? posted : 100));
		}
		senders_look();
		moving_look();
		if (told != unexpected && (sync_wanted || !by_flags)) {
			told = unexpected;
			CHECK(!tell(told, 0));
		}
		sync_wanted = false;
	}
	CHECK(unexpected > 100 && total > MOVING + 10);
	check_rooms(posted);
	nothing(unexpected);
	unmake();
}

static void test_moving(void)
{
	moving(false);
}

static void test_moving_by_flags(void)
{
	moving(true);
}

/* Tests the example of the manual and the steps after it. */
static void test_unexpected(void)
{
	uint32_t i;

	make(8, 16);
	entry_make(0, 5, ALL, 5000, 1);
	entry_make(1, 0x100, 0xff00, 100, 1);
	entry_make(2, 5, ALL, 5000, 1);
	entry_make(3, 7, ALL, 100, 1);
	for (i = 0; i < 3; i++)
		CHECK(!add(i, 0));
	message_make(0, 0x123, 60, false);
	message_make(1, 7, 61, false);
	message_make(2, 7, 62, false);
	message_make(3, 5, 4000, true);
	message_make(4, 5, 4001, false);
	message_make(5, 7, 63, false);

	message_send(0, 0);
	CHECK(expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)
	      .length == 60);
	expect_data(1, 0);
	message_send(1, 0);
	CHECK(expect(IBV_WC_TM_RECV, 0, 0).length == 16 + 61);
	CHECK(!memcmp(area->wqe[0] + 16, buffer + message[1].source, 61));
	CHECK(!add(3, IBV_OPS_SIGNALED));
	expect(IBV_WC_TM_ADD, 3, IBV_WC_TM_SYNC_REQ);
	message_send(2, 0);
	expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_SYNC_REQ);
	message_send(3, 0);
	CHECK(expect(IBV_WC_TM_RECV, 0, IBV_WC_TM_MATCH).length == 4000);
	CHECK(expect(IBV_WC_TM_RECV, 0, IBV_WC_TM_DATA_VALID).length == 4000);
	expect_data(0, 3);
	expect_fin(3);
	CHECK(!del_with(entry[3].handle, 3, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
			1));
	expect(IBV_WC_TM_DEL, 3, IBV_WC_TM_SYNC_REQ);
	CHECK(!add_with(3, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 1));
	expect(IBV_WC_TM_ADD, 3, IBV_WC_TM_SYNC_REQ);
	CHECK(!tell(2, IBV_OPS_SIGNALED));
	expect(IBV_WC_TM_SYNC, NONE, 0);
	/*
	 * Entry 3 is active from now on, because both unexpected messages are
	 * reported. Entry 2 was added before them and was always active.
	 */
	message_send(5, 0);
	expect(IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	expect_data(3, 5);
	message_send(4, 0);
	CHECK(expect(IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH).tag == 5);
	CHECK(expect(IBV_WC_TM_RECV, 2, IBV_WC_TM_DATA_VALID).length == 4001);
	expect_data(2, 4);
	/*
	 * Both counts are errors, because one exceeds the received messages,
	 * and the other is less than before
	 */
	CHECK(!tell(3, 0));
	expect_error(IBV_WC_LOC_QP_OP_ERR, NONE, QRNIC_SYN_TAG_COUNT);
	CHECK(!tell(1, 0));
	expect_error(IBV_WC_LOC_QP_OP_ERR, NONE, QRNIC_SYN_TAG_COUNT);
	nothing(2);
	unmake();
}

/* Tests messages without a tag, or with an invalid header. */
static void test_untagged(void)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
	} bad[BAD_HEADERS] = {
		{ IBV_TMH_NO_TAG, 32 }, { IBV_TMH_FIN, 32 }, { 4, 32 },
		{ IBV_TMH_EAGER, 15 }, { IBV_TMH_EAGER, 0 },
		{ IBV_TMH_RNDV, 31 },
		{ IBV_TMH_RNDV, QRNIC_MAX_RENDEZVOUS + 1 },
	};
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	};
	unsigned int i;

	make(4, 4);
	entry_make(0, 0, 0, 1000, 1);
	CHECK(!add(0, 0));
	for (i = 0; i < BAD_HEADERS; i++) {
		memset(area->slot[0], 0, SLOT_SIZE);
		area->slot[0][0] = bad[i].opcode;
		sge = of_area(area->slot[0], bad[i].length);
		wr.wr_id = i;
		CHECK(!post_send(from[0], &wr));
		CHECK(expect(IBV_WC_TM_NO_TAG, i, 0).length == bad[i].length);
		CHECK(!memcmp(area->wqe[i], area->slot[0], bad[i].length));
		sent_well(i);
	}
	/*
	 * Messages without a valid header do not count. The entry still exists,
	 * also for the longest header.
	 */
	nothing(0);
	area->slot[0][0] = IBV_TMH_RNDV;
	sge.length = QRNIC_MAX_RENDEZVOUS;
	CHECK(!post_send(from[0], &wr));
	expect(IBV_WC_TM_RECV, 0, IBV_WC_TM_MATCH);
	expect(IBV_WC_TM_RECV, 0, IBV_WC_TM_DATA_VALID);
	unmake();
}

static void test_deleted(void)
{
	uint32_t i;

	make(4, 16);
	for (i = 0; i < 4; i++) {
		entry_make(i, 9, ALL, 100, 1);
		CHECK(!add(i, 0));
	}
	message_make(0, 9, 100, false);
	message_make(1, 9, 99, false);
	/*
	 * Removes the first entry and one in the middle; the second entry is
	 * then the first
	 */
	CHECK(!del(0) && !del(2));
	expect(IBV_WC_TM_DEL, 0, 0);
	expect(IBV_WC_TM_DEL, 2, 0);
	message_send(0, 1);
	expect(IBV_WC_TM_RECV, 1, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	expect_data(1, 0);
	/*
	 * These entries were removed or matched. The error completes even if
	 * the operation is unsignaled.
	 */
	CHECK(!del(0) && !del(1));
	expect_error(IBV_WC_TM_ERR, 0, QRNIC_SYN_TAG_HANDLE);
	expect_error(IBV_WC_TM_ERR, 1, QRNIC_SYN_TAG_HANDLE);
	CHECK(!del_with(entry[2].handle, 2, 0, 0));
	expect_error(IBV_WC_TM_ERR, 2, QRNIC_SYN_TAG_HANDLE);
	/* The entry has matched, but its completion was not yet polled */
	message_send(1, 2);
	completions_wait(ibv_cq_ex_to_cq(cq), 1);
	CHECK(!del(3));
	expect(IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	expect_error(IBV_WC_TM_ERR, 3, QRNIC_SYN_TAG_HANDLE);
	nothing(0);
	unmake();
}

/*
 * Tests that entries are reused, and that an old handle never names a new
 * entry.
 */
static void test_handles(void)
{
	uint32_t handle[3], old, round, i;

	make(3, 8);
	for (i = 0; i < 4; i++)
		entry_make(i, i, ALL, 10, 1);
	for (i = 0; i < 3; i++) {
		CHECK(!add(i, 0));
		handle[i] = entry[i].handle;
	}
	CHECK(handle[0] != handle[1] && handle[1] != handle[2] &&
	      handle[0] != handle[2]);
	CHECK(add(3, 0) == ENOMEM);
	for (round = 0; round < 1000; round++) {
		i = round % 3;
		old = entry[i].handle;
		if (round % 2) {
			CHECK(!del_with(old, i, 0, 0));
		} else {
			message_make(0, i, 10, false);
			message_send(0, 0);
			expect(IBV_WC_TM_RECV, i,
			       IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
			sent_well(0);
		}
		nothing(0);
		CHECK(!add(i, 0) && entry[i].handle != old);
		CHECK(add(3, 0) == ENOMEM);
		CHECK(!del_with(old, 7, IBV_OPS_SIGNALED, 0));
		expect_error(IBV_WC_TM_ERR, 7, QRNIC_SYN_TAG_HANDLE);
	}
	unmake();
}

/*
 * Tests a full ring. The ring has the requested length, and each finished
 * operation frees its slot.
 */
static void test_full_ring(void)
{
	struct ibv_ops_wr wr[20] = {}, *bad = NULL;
	unsigned int i, round;
	uint64_t end = now_ms() + SECONDS * 1000;
	struct completion c;
	int err;

	make(100, 16);
	for (i = 0; i < 20; i++) {
		wr[i].wr_id = i;
		wr[i].next = i < 19 ? &wr[i + 1] : NULL;
		wr[i].opcode = IBV_WR_TAG_SYNC;
		wr[i].flags = IBV_OPS_SIGNALED;
	}
	for (round = 0; round < 3; round++) {
		CHECK(ibv_post_srq_ops(srq, wr, &bad) == ENOMEM);
		CHECK(bad == &wr[16]);
		CHECK(ibv_post_srq_ops(srq, &wr[16], &bad) == ENOMEM);
		for (i = 0; i < 16; i++)
			expect(IBV_WC_TM_SYNC, i, 0);
	}
	/* Here the program sees no completion at all */
	for (i = 0; i < 1000; i++) {
		while ((err = tell(0, 0)) == ENOMEM) {
			CHECK(!take(&c));
			CHECK(now_ms() < end);
		}
		CHECK(!err);
	}
	unmake();
}

/*
 * Tests buffers of 0 pieces up to the limit, all lengths up to 200, and a large
 * one.
 */
static void test_pieces(void)
{
	struct ibv_device_attr_ex attr;
	uint32_t most, i, length;

	make(8, 16);
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	most = attr.tm_caps.max_sge < 8 ? attr.tm_caps.max_sge : 8;
	entry_make(0, 0, ALL, 0, 0);
	message_make(0, 0, 0, false);
	CHECK(!add(0, 0));
	message_send(0, 0);
	expect(IBV_WC_TM_RECV, 0, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	sent_well(0);
	for (length = 1; length < 200; length++) {
		i = length;
		entry_make(i, length, ALL, length + length % 3,
			   1 + length % most);
		message_make(i, length, length, length % 4 == 0);
		CHECK(!add(i, 0));
		message_send(i, 1);
		if (length % 4) {
			expect(IBV_WC_TM_RECV, i,
			       IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
		} else {
			expect(IBV_WC_TM_RECV, i, IBV_WC_TM_MATCH);
			expect(IBV_WC_TM_RECV, i, IBV_WC_TM_DATA_VALID);
			expect_fin(i);
		}
		expect_data(i, i);
		sent_well(i);
	}
	for (i = 0; i < 2; i++) {
		entry_make(200 + i, 1, ALL, BUFFER_SIZE - 10, most);
		message_make(200 + i, 1, BUFFER_SIZE - 20, i);
		CHECK(!add(200 + i, 0));
		message_send(200 + i, 2);
		expect(IBV_WC_TM_RECV, 200 + i, IBV_WC_TM_MATCH);
		CHECK(expect(IBV_WC_TM_RECV, 200 + i, IBV_WC_TM_DATA_VALID)
		      .length == BUFFER_SIZE - 20);
		expect_data(200 + i, 200 + i);
		sent_well(200 + i);
	}
	expect_fin(201);
	unmake();
}

static void sent_badly(uint32_t i, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	CHECK(poll_one(send_cq, &wc) == 1 && wc.status == status &&
	      wc.wr_id == i);
}

static void expect_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	do {
		CHECK(now_ms() < end);
		CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	} while (attr.qp_state != state);
}

/*
 * Tests errors of one queue pair. The entry completes with the error and this
 * queue pair fails, but no other. A rendezvous that is too long is left to the
 * receiver.
 */
static void test_wrong(void)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 100, 0x7fffff00 };
	struct ibv_ops_wr wr = {
		.wr_id = 3, .opcode = IBV_WR_TAG_ADD,
		.tm.add = { .recv_wr_id = 3, .sg_list = &sge, .num_sge = 1,
			    .tag = 3, .mask = ALL },
	};
	struct completion c;

	make(8, 16);
	entry_make(0, 0, ALL, 1000, 1);
	entry_make(1, 1, ALL, 1000, 1);
	entry_make(2, 2, ALL, 1000, 1);
	entry_make(3, 4, ALL, 1000, 1);
	CHECK(!add(0, 0) && !add(1, 0) && !add(2, 0) && !post_ops(&wr) &&
	      !add(3, 0));
	message_make(0, 0, 1001, true);
	message_make(1, 1, 1001, false);
	message_make(2, 2, 1000, true);
	message_make(3, 3, 50, false);
	message_make(4, 4, 1000, false);

	message_send(0, 0);
	c = expect_error(IBV_WC_TM_RNDV_INCOMPLETE, 0, QRNIC_SYN_TAG_LENGTH);
	CHECK(c.length == sizeof(struct header) && c.number == 0);
	CHECK(!memcmp(area->room + entry[0].at, &area->header[0],
		      sizeof(struct header)));
	sent_well(0);
	expect_state(to[0], IBV_QPS_RTS);

	message_send(1, 1);
	expect_error(IBV_WC_LOC_LEN_ERR, 1, 0);
	sent_badly(1, IBV_WC_REM_INV_REQ_ERR);
	expect_state(to[1], IBV_QPS_ERR);

	message[2].wrong_key = 0x100;
	message_send(2, 2);
	expect(IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH);
	expect_error(IBV_WC_REM_ACCESS_ERR, 2, 0);
	expect_state(to[2], IBV_QPS_ERR);
	sent_well(2);

	message_send(3, 3);
	expect_error(IBV_WC_LOC_PROT_ERR, 3, QRNIC_SYN_KEY_INVALID);
	sent_badly(3, IBV_WC_REM_OP_ERR);
	expect_state(to[3], IBV_QPS_ERR);

	/* One of four queue pairs still works, and so does the list */
	entry_make(4, 4, ALL, 1000, 1);
	message_send(4, 0);
	expect(IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	expect_data(3, 4);
	nothing(0);
	unmake();
}

/*
 * Tests that entries and other queue pairs survive when a queue pair is
 * destroyed during traffic.
 */
static void test_one_goes(void)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	uint32_t i, round, gone;
	struct completion c;
	struct ibv_wc wc;

	make(4, 64);
	for (round = 0; round < 30; round++) {
		for (i = 0; i < 4; i++) {
			entry_make(i, round, ALL, 20000, 1);
			message_make(i, round, 20000, round % 2);
			CHECK(!add(i, 0));
		}
		message_send(0, 0);
		message_send(1, 0);
		if (round % 3)
			CHECK(!to_state(to[0], IBV_QPS_ERR));
		CHECK(!ibv_destroy_qp(to[0]) && !ibv_destroy_qp(from[0]));
		while (ibv_poll_cq(send_cq, 1, &wc))
			;
		while (ibv_poll_cq(fin_cq, 1, &wc))
			;
		/* Each entry was matched, flushed, or is still in the list */
		for (i = 0; i < 4; i++)
			CHECK(!del(i));
		for (gone = i = 0; gone < 4 || i < 4;) {
			CHECK(now_ms() < end);
			if (!take(&c))
				continue;
			CHECK(c.wr_id < 4);
			if (c.opcode == IBV_WC_TM_DEL) {
				i++;
				gone += !c.status;
			} else {
				CHECK(!c.status || c.status ==
				      IBV_WC_WR_FLUSH_ERR);
				gone += c.status ||
					c.flags & IBV_WC_TM_DATA_VALID;
			}
		}
		qp_make(0);
		for (i = 0; i < 4; i++)
			CHECK(!add(i, 0));
		for (i = 0; i < 4; i++) {
			message_make(i, round, 100, false);
			message_send(i, i);
		}
		for (i = 0; i < 4; i++) {
			c = await();
			CHECK(!c.status && c.wr_id == i && c.flags ==
			      (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID));
			CHECK(!memcmp(area->room + entry[i].at, buffer +
				      message[c.number].source, 100));
			CHECK(poll_one(send_cq, &wc) == 1 && !wc.status);
		}
	}
	unmake();
}

static int srq_error(struct ibv_srq_init_attr_ex attr)
{
	struct ibv_srq *made;

	errno = 0;
	made = ibv_create_srq_ex(context, &attr);
	CHECK(!made == !!errno);
	if (made)
		CHECK(!ibv_destroy_srq(made));
	return errno;
}

static int qp_error(enum ibv_qp_type type, uint32_t received_inline)
{
	struct qrnicdv_qp_init_attr dv = { .max_inl_recv = received_inline };
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = send_cq, .recv_cq = send_cq, .srq = srq,
		.cap = { 1, 0, 1, 1, 0 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	errno = 0;
	qp = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
	CHECK(!qp == !!errno);
	if (qp)
		CHECK(!ibv_destroy_qp(qp));
	return errno;
}

/* Tests invalid calls. Invalid attributes of the SRQ are in errno-test.c. */
static void test_refused(void)
{
	struct ibv_srq_init_attr plain = { .attr = { 4, 1, 0 } };
	struct ibv_device_attr_ex attr;
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC }, *bad;
	struct ibv_srq *other;
	struct ibv_sge sge[64];
	int i;

	make(4, 4);
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	CHECK(attr.tm_caps.max_rndv_hdr_size == QRNIC_MAX_RENDEZVOUS);
	CHECK(attr.tm_caps.max_num_tags == QRNIC_MAX_TAGS - 1);
	CHECK(attr.tm_caps.max_ops == QRNIC_MAX_TAG_OPS);
	CHECK(attr.tm_caps.flags == IBV_TM_CAP_RC);
	CHECK(attr.tm_caps.max_sge == (uint32_t)attr.orig_attr.max_sge);

	CHECK(!qp_error(IBV_QPT_RC, 0));
	CHECK(qp_error(IBV_QPT_RC, 8) == EOPNOTSUPP);
	CHECK(qp_error(IBV_QPT_UC, 0) == EINVAL);
	CHECK(qp_error(IBV_QPT_UD, 0) == EINVAL);

	wr.opcode = IBV_WR_TAG_SYNC + 1;
	CHECK(post_ops(&wr) == EINVAL);
	wr.opcode = IBV_WR_TAG_SYNC;
	wr.flags = 4;
	CHECK(post_ops(&wr) == EINVAL);
	wr.flags = 0;
	wr.opcode = IBV_WR_TAG_DEL;
	wr.tm.handle = 4;
	CHECK(post_ops(&wr) == EINVAL);
	wr.opcode = IBV_WR_TAG_ADD;
	wr.tm.add.num_sge = -1;
	CHECK(post_ops(&wr) == EINVAL);
	for (i = 0; i < 64; i++)
		sge[i] = of_area(area->room, 1);
	wr.tm.add.sg_list = sge;
	wr.tm.add.num_sge = attr.tm_caps.max_sge;
	CHECK(attr.tm_caps.max_sge < 64 && !post_ops(&wr));
	wr.tm.add.num_sge++;
	CHECK(post_ops(&wr) == EINVAL);
	/* This SRQ has no list */
	other = ibv_create_srq(pd, &plain);
	CHECK(other);
	wr = (struct ibv_ops_wr){ .opcode = IBV_WR_TAG_SYNC };
	CHECK(ibv_post_srq_ops(other, &wr, &bad) == EOPNOTSUPP && bad == &wr);
	CHECK(!ibv_destroy_srq(other));
	unmake();
}

/*
 * Tests the limit of all lists together. Destroyed lists must release their
 * entries.
 */
static void test_many_lists(void)
{
	const int most = QRNIC_MAX_ALL_TAGS / QRNIC_MAX_TAGS;
	struct ibv_srq_init_attr_ex attr;
	struct ibv_srq *list[most];
	int round, i;

	make(1, 1);
	attr = srq_attr(QRNIC_MAX_TAGS - 1, 1);
	attr.attr.max_wr = 1;
	for (round = 0; round < 3; round++) {
		for (i = 0; i < most - 1; i++) {
			list[i] = ibv_create_srq_ex(context, &attr);
			CHECK(list[i]);
		}
		CHECK(srq_error(attr) == ENOMEM);
		for (i = 0; i < most - 1; i++)
			CHECK(!ibv_destroy_srq(list[i]));
	}
	unmake();
}

/* Tests that the ring of the SRQ can be resized while the list is in use. */
static void test_resize(void)
{
	static const uint32_t sizes[] = { 500, 130, 1000 };
	struct ibv_srq_attr attr = {};
	struct completion c;
	uint32_t i, j;

	NEED(capabilities & QRNIC_CAP_SRQ_RESIZE);
	make(4, 16);
	for (i = 0; i < 3; i++) {
		attr.max_wr = sizes[i];
		CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
		for (j = 0; j < 200; j++) {
			entry_make(0, 1, ALL, 3000, 2);
			message_make(0, 1 + j % 2, random_below(3000), false);
			CHECK(!add_with(0, IBV_OPS_TM_SYNC,
					i * 100 + j / 2));
			message_send(0, j % QPS);
			sent_well(0);
			if (!(j % 2)) {
				do {
					c = await();
					CHECK(!c.status && c.wr_id == 0);
				} while (!(c.flags & IBV_WC_TM_DATA_VALID));
				continue;
			}
			c = await();
			CHECK(!c.status && c.opcode == IBV_WC_TM_RECV &&
			      c.length == 16 + message[0].length);
			CHECK(!memcmp(area->wqe[c.wr_id] + 16,
				      buffer + message[0].source,
				      message[0].length));
			wqe_post(c.wr_id);
			CHECK(!del_with(entry[0].handle, 0, IBV_OPS_TM_SYNC,
					i * 100 + j / 2 + 1));
		}
	}
	nothing(300);
	unmake();
}

/* Tests an adapter without tag matching. */
static void test_lesser(void)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4, .wc_flags = IBV_WC_EX_WITH_TM_INFO,
	};
	struct ibv_srq_init_attr plain = { .attr = { 4, 1, 0 } };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC }, *bad;
	struct ibv_device_attr_ex attr;

	NEED(!(capabilities & QRNIC_CAP_TAG_MATCHING));
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	CHECK(!attr.tm_caps.max_num_tags && !attr.tm_caps.max_ops &&
	      !attr.tm_caps.max_sge && !attr.tm_caps.flags &&
	      !attr.tm_caps.max_rndv_hdr_size);
	errno = 0;
	CHECK(!ibv_create_cq_ex(context, &cq_attr) && errno == EOPNOTSUPP);
	cq_attr.wc_flags = 0;
	cq = ibv_create_cq_ex(context, &cq_attr);
	CHECK(cq);
	CHECK(srq_error(srq_attr(4, 4)) == EOPNOTSUPP);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	cq = NULL;
	srq = ibv_create_srq(pd, &plain);
	/* An adapter without tag matching may have no SRQ at all */
	if (!srq)
		return;
	CHECK(ibv_post_srq_ops(srq, &wr, &bad) == EOPNOTSUPP);
	CHECK(!ibv_destroy_srq(srq));
}

static void hold(void)
{
	NEED(capabilities & QRNIC_CAP_TAG_MATCHING);
	printf("# loop\n");
	fflush(stdout);
	for (;;)
		moving(random_below(2));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	if (argc > 3 && !strcmp(argv[3], "loop")) {
		run("endless traffic", hold);
		return 1;
	}
	run("tags: an adapter without tag matching", test_lesser);
	run("tags: limits and invalid calls", test_refused);
	run("tags: many lists", test_many_lists);
	run("tags: unexpected messages, step by step", test_unexpected);
	run("tags: messages without a tag", test_untagged);
	run("tags: entries are removed", test_deleted);
	run("tags: handles", test_handles);
	run("tags: a full ring of operations", test_full_ring);
	run("tags: buffers of several pieces", test_pieces);
	run("tags: 10,000 entries and messages in random order", test_many);
	run("tags: entries and messages at the same time", test_moving);
	run("tags: entries and messages at the same time, reports on request",
	    test_moving_by_flags);
	run("tags: errors of messages", test_wrong);
	run("tags: a queue pair is destroyed", test_one_goes);
	run("tags: the SRQ is resized", test_resize);
	if (area && (ibv_dereg_mr(area_mr)))
		failures++;
	return tear_down();
}
