// SPDX-License-Identifier: GPL-2.0
/*
 * A device-mapper target that answers as late as a modelled disk would.
 *
 * The arithmetic is that of crates/slowdisk/src/sched.rs, in whole nanoseconds and
 * on the guest's CLOCK_MONOTONIC, which is virtual time under QEMU's -icount. Data
 * comes from the device below at once; only the answer is delayed.
 *
 * Table: START LENGTH slow DEVICE [DEPTH READ_NS WRITE_NS PS_PER_BYTE GAP_NS
 *                                  SETTLE_NS FULL_STROKE_NS HALF_TURN_NS WINDOW]
 *
 * DEPTH requests are in service at once. GAP_NS lie between two requests at least
 * (0: no such limit). With WINDOW 0 nothing moves. Without numbers nothing is delayed.
 *
 * It does not order, merge or fail requests, and keeps no cache.
 */
#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/spinlock.h>

/* The numbers of a model, in the order of the table. */
enum number {
	DEPTH, READ_NS, WRITE_NS, PS_PER_BYTE, GAP_NS,
	SETTLE_NS, FULL_STROKE_NS, HALF_TURN_NS, WINDOW,
	NUMBERS
};

struct slow {
	struct dm_dev *below;
	bool modelled;
	u64 model[NUMBERS];
	u64 capacity;

	/* Protects what follows. */
	spinlock_t lock;
	struct hrtimer timer;
	struct list_head waiting;	/* oldest first */
	struct list_head in_service;	/* earliest first */
	u64 busy;			/* slots in service */
	u64 free_since;			/* when a slot was last given back */
	u64 transfers_end;
	u64 next_token;
	u64 head;

	u64 requests;
	u64 bytes;
	u64 total_ns;
};

struct request {
	struct list_head list;
	u64 arrived;
	u64 due;
	u64 offset;
	u64 length;
	bool write;
	bool transfers;
	bool timed;
	bool model_done;
	bool below_done;
};

/* Seek and rotation; a short gap ahead is read over when that is faster. */
static u64 move_ns(const struct slow *s, const struct request *r)
{
	const u64 *m = s->model;
	u64 distance, share, moved;

	if (!m[WINDOW] || r->offset == s->head)
		return 0;
	distance = r->offset > s->head ? r->offset - s->head : s->head - r->offset;
	/* 2^16 times the square root of distance / capacity; in sectors, to fit. */
	share = int_sqrt64(div64_u64((distance >> SECTOR_SHIFT) << 32,
				     s->capacity >> SECTOR_SHIFT));
	moved = m[SETTLE_NS] + (((m[FULL_STROKE_NS] - m[SETTLE_NS]) * share) >> 16) +
		m[HALF_TURN_NS];
	if (r->offset < s->head)
		return moved;
	return min(moved, mul_u64_u64_div_u64(distance, m[PS_PER_BYTE], 1000));
}

/* When a request that gets its slot at `at` is answered. */
static u64 serve(struct slow *s, const struct request *r, u64 at)
{
	const u64 *m = s->model;
	u64 latency = r->write || !r->transfers ? m[WRITE_NS] : m[READ_NS];
	u64 begin, moving;

	if (!r->transfers)
		return at + latency;
	begin = max(at, s->next_token);
	if (m[GAP_NS])
		s->next_token = begin + m[GAP_NS];
	moving = move_ns(s, r);
	s->head = r->offset + r->length;
	s->transfers_end = max(begin, s->transfers_end) +
			   div_u64(r->length * m[PS_PER_BYTE], 1000);
	return s->transfers_end + latency + moving;
}

/* Of the oldest, the nearest ahead of the head, else the nearest to the start. */
static struct request *choose(const struct slow *s)
{
	struct request *r, *best = NULL;
	u64 seen = 0;

	list_for_each_entry(r, &s->waiting, list) {
		if (!best) {
			best = r;
		} else if (r->transfers != best->transfers) {
			if (!r->transfers)
				best = r;
		} else if ((r->offset < s->head) != (best->offset < s->head)) {
			if (r->offset >= s->head)
				best = r;
		} else if (r->offset < best->offset) {
			best = r;
		}
		if (++seen >= s->model[WINDOW])
			break;
	}
	return best;
}

/* Starts what waits while there are slots, and sets the timer. */
static void start(struct slow *s)
{
	struct request *r, *other;

	while (s->busy < s->model[DEPTH] && !list_empty(&s->waiting)) {
		r = choose(s);
		list_del(&r->list);
		r->due = serve(s, r, max(r->arrived, s->free_since));
		s->busy++;
		/* Behind all that are due no later. */
		list_for_each_entry_reverse(other, &s->in_service, list)
			if (other->due <= r->due)
				break;
		list_add(&r->list, &other->list);
	}
	if (!list_empty(&s->in_service)) {
		r = list_first_entry(&s->in_service, struct request, list);
		hrtimer_start(&s->timer, ns_to_ktime(r->due), HRTIMER_MODE_ABS_SOFT);
	}
}

static enum hrtimer_restart answer(struct hrtimer *timer)
{
	struct slow *s = container_of(timer, struct slow, timer);
	struct request *r, *next;
	LIST_HEAD(done);
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	while (!list_empty(&s->in_service)) {
		r = list_first_entry(&s->in_service, struct request, list);
		if (r->due > ktime_get_ns())
			break;
		list_del_init(&r->list);
		s->busy--;
		/*
		 * What gets this slot starts when it became free, however late
		 * this is. Slots that were free before are not distinguished: what
		 * waits is there only while all slots are busy.
		 */
		s->free_since = r->due;
		s->requests++;
		s->bytes += r->length;
		s->total_ns += r->due - r->arrived;
		r->model_done = true;
		if (r->below_done)
			list_add_tail(&r->list, &done);
		start(s);
	}
	start(s);
	spin_unlock_irqrestore(&s->lock, flags);
	list_for_each_entry_safe(r, next, &done, list)
		bio_endio(dm_bio_from_per_bio_data(r, sizeof(*r)));
	return HRTIMER_NORESTART;
}

static int slow_map(struct dm_target *ti, struct bio *bio)
{
	struct slow *s = ti->private;
	struct request *r = dm_per_bio_data(bio, sizeof(*r));
	enum req_op op = bio_op(bio);
	unsigned long flags;

	bio_set_dev(bio, s->below->bdev);
	memset(r, 0, sizeof(*r));
	INIT_LIST_HEAD(&r->list);
	if (!s->modelled)
		return DM_MAPIO_REMAPPED;
	r->timed = true;
	r->write = op != REQ_OP_READ;
	r->transfers = (op == REQ_OP_READ || op == REQ_OP_WRITE) && bio_sectors(bio);
	r->offset = bio->bi_iter.bi_sector << SECTOR_SHIFT;
	r->length = r->transfers ? bio->bi_iter.bi_size : 0;
	spin_lock_irqsave(&s->lock, flags);
	r->arrived = ktime_get_ns();
	list_add_tail(&r->list, &s->waiting);
	start(s);
	spin_unlock_irqrestore(&s->lock, flags);
	return DM_MAPIO_REMAPPED;
}

static int slow_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct slow *s = ti->private;
	struct request *r = dm_per_bio_data(bio, sizeof(*r));
	unsigned long flags;
	int what = DM_ENDIO_DONE;

	if (!r->timed)
		return what;
	spin_lock_irqsave(&s->lock, flags);
	/* The second time it comes from answer(). */
	if (!r->below_done) {
		r->below_done = true;
		if (!r->model_done)
			what = DM_ENDIO_INCOMPLETE;
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return what;
}

static int slow_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct slow *s;
	int i, error;

	if (argc != 1 && argc != 1 + NUMBERS) {
		ti->error = "It takes a device, or a device and nine numbers";
		return -EINVAL;
	}
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s) {
		ti->error = "No memory";
		return -ENOMEM;
	}
	s->modelled = argc > 1;
	for (i = 0; s->modelled && i < NUMBERS; i++) {
		error = kstrtou64(argv[i + 1], 10, &s->model[i]);
		if (error) {
			ti->error = "Not a number";
			goto free;
		}
	}
	error = -EINVAL;
	if (s->modelled && (!s->model[DEPTH] || s->model[FULL_STROKE_NS] < s->model[SETTLE_NS])) {
		ti->error = "The depth is 0, or the full stroke is shorter than the shortest";
		goto free;
	}
	error = dm_get_device(ti, argv[0], dm_table_get_mode(ti->table), &s->below);
	if (error) {
		ti->error = "No such device";
		goto free;
	}
	s->capacity = ti->len << SECTOR_SHIFT;
	spin_lock_init(&s->lock);
	INIT_LIST_HEAD(&s->waiting);
	INIT_LIST_HEAD(&s->in_service);
	hrtimer_init(&s->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	s->timer.function = answer;
	ti->num_flush_bios = 1;
	ti->per_io_data_size = sizeof(struct request);
	ti->private = s;
	return 0;
free:
	kfree(s);
	return error;
}

static void slow_dtr(struct dm_target *ti)
{
	struct slow *s = ti->private;

	hrtimer_cancel(&s->timer);
	dm_put_device(ti, s->below);
	kfree(s);
}

static void slow_status(struct dm_target *ti, status_type_t type, unsigned int flags,
			char *result, unsigned int maxlen)
{
	struct slow *s = ti->private;
	unsigned int sz = 0, i;

	switch (type) {
	case STATUSTYPE_INFO:
		DMEMIT("requests=%llu bytes=%llu mean_ns=%llu", s->requests, s->bytes,
		       s->requests ? div64_u64(s->total_ns, s->requests) : 0);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s", s->below->name);
		for (i = 0; s->modelled && i < NUMBERS; i++)
			DMEMIT(" %llu", s->model[i]);
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

static int slow_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn found,
				void *data)
{
	struct slow *s = ti->private;

	return found(ti, s->below, 0, ti->len, data);
}

static struct target_type slow_target = {
	.name = "slow",
	.version = { 1, 0, 0 },
	.module = THIS_MODULE,
	.ctr = slow_ctr,
	.dtr = slow_dtr,
	.map = slow_map,
	.end_io = slow_end_io,
	.status = slow_status,
	.iterate_devices = slow_iterate_devices,
};
module_dm(slow);

MODULE_DESCRIPTION("Answers as late as a modelled disk");
MODULE_LICENSE("GPL");
