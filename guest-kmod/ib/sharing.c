// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * sharing.c: shared connections that the driver creates for programs that
 * connect by the communication manager and do not request them (manual, Shared
 * connections).
 *
 * The library calls qrnic_share_agree() for each connection, and sends its
 * result to the peer by enhanced connection establishment (ECE). One end sends
 * a connection request, the other one replies with the number of a carrier. At
 * the transition to RTR both ends call qrnic_share_join(). sharing_mutex
 * protects all shares and links, and is taken before the mutex of a QP.
 */
#include <linux/random.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "qp.h"
#include "qrnic_ib.h"

/*
 * Timeout (0.54 s) and number of retries, so eight transmissions. Both are
 * large, because all members fail if the carrier fails.
 */
#define SHARE_TIMEOUT 17
#define SHARE_RETRIES 7

#define ECE_NUMBER GENMASK(31, 8)

/*
 * Link: a carrier that the driver has created, and its path. A link exists as
 * long as its share, even without members.
 */
struct qrnic_ib_share_link {
	struct list_head entry;
	struct qrnic_ib_carrier *carrier;
	/* Number of the peer's carrier; 0 in a share that replies */
	u32 peer_number;
	/* Options of the carrier (QRNIC_QPO_*) */
	u8 options;
	/* True if the carrier is in RTS */
	bool connected;
	/* True after an error, for ever; also written by events */
	bool failed;
	/* Destination and source of the path; valid if connected is true */
	u8 dgid[16];
	__le16 sgid_index;
};

/*
 * Share: the carriers that connections of one process may use.
 *
 * A share that requests belongs to one local process (qrnic_share_offer()). The
 * share has one carrier to each node that the process connects to. A share that
 * replies belongs to the local processes of one user in one network namespace
 * (qrnic_share_answer()). The connections of these processes come from one
 * process of another node. The share has one carrier, which is created with the
 * share. Other users and namespaces have shares of their own for the same
 * number. The reason is that the first member of a carrier chooses its path for
 * all members. sharing_mutex protects all members.
 */
struct qrnic_ib_share {
	struct list_head entry;
	struct list_head links;
	/* Context of the process that requests; NULL in a share that replies */
	struct qrnic_ib_ucontext *ucontext;
	struct qrnic_ib_owner owner;	/* owner of a share that replies */
	/* Number of the process that requests: 24 bits, and not 0 */
	u32 number;
	/* Number of queue pairs that requested or replied with this share */
	u32 users;
	/* options (QRNIC_QPO_*) that a carrier uses if both ends have them */
	u8 options;
	/* True if no new connection uses the share */
	bool retired;
};

/*
 * Removes the link from its share; qrnic_sharing_unlock() releases its carrier.
 */
static void qrnic_link_remove(struct qrnic_ib_dev *dev,
			      struct qrnic_ib_share_link *link)
{
	xa_erase_irq(&dev->share_links, link->carrier->number);
	list_move(&link->entry, &dev->dead_links);
}

/*
 * Releases sharing_mutex, and then frees the links that were removed meanwhile.
 * The links are freed without the mutex, because freeing flushes the events of
 * their carriers, and other connections need not wait for that.
 */
void qrnic_sharing_unlock(struct qrnic_ib_dev *dev)
{
	struct qrnic_ib_share_link *link, *next;
	LIST_HEAD(dead);

	list_splice_init(&dev->dead_links, &dead);
	mutex_unlock(&dev->sharing_mutex);
	list_for_each_entry_safe(link, next, &dead, entry) {
		qrnic_carrier_put(link->carrier);
		kfree(link);
	}
}

static struct qrnic_ib_share_link *qrnic_link_new(struct qrnic_ib_dev *dev,
						  struct qrnic_ib_share *share,
						  u32 peer_number, u8 options)
{
	struct qrnic_ib_share_link *link = kzalloc(sizeof(*link), GFP_KERNEL_ACCOUNT);
	int err;

	if (!link)
		return ERR_PTR(-ENOMEM);
	link->peer_number = peer_number;
	link->options = options;
	link->carrier = qrnic_carrier_create(dev);
	if (IS_ERR(link->carrier)) {
		err = PTR_ERR(link->carrier);
		goto err_link;
	}
	err = xa_insert_irq(&dev->share_links, link->carrier->number, link,
			    GFP_KERNEL);
	if (err)
		goto err_carrier;
	list_add(&link->entry, &share->links);
	return link;

err_carrier:
	qrnic_carrier_put(link->carrier);
err_link:
	kfree(link);
	return ERR_PTR(err);
}

/*
 * Returns the first PSN of both directions. The PSN depends on the numbers of
 * both ends, so that no late packet of another carrier is accepted. The number
 * of one end alone does not suffice, because it is close to the number of the
 * carrier that was created before.
 */
static u32 qrnic_link_psn(const struct qrnic_ib_share *share,
			  const struct qrnic_ib_share_link *link)
{
	u32 peer = link->peer_number ? : link->carrier->number;

	return (share->number << 8 ^ peer) * 0x9e3779b1u >> 8;
}

static int qrnic_link_modify(struct qrnic_ib_dev *dev, struct qrnic_ib_share_link *link,
			     enum qrnic_qp_state state, u32 mask,
			     struct qrnic_qp_attr *hw)
{
	hw->state = state;
	hw->mask = cpu_to_le32(mask | QRNIC_QP_STATE);
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_QP, link->carrier->number,
			     hw, sizeof(*hw));
}

/*
 * Returns a carrier without members to the state before qrnic_link_connect().
 * If that fails, no connection uses the carrier any more.
 */
static void qrnic_link_disconnect(struct qrnic_ib_dev *dev,
				  struct qrnic_ib_share_link *link)
{
	struct qrnic_qp_attr reset = {};

	if (qrnic_link_modify(dev, link, QRNIC_QPS_RESET, 0, &reset))
		WRITE_ONCE(link->failed, true);
	link->connected = false;
	qrnic_carrier_path(link->carrier, NULL);
}

/*
 * Connects a carrier by the path of its first member. Returns 0 or a negative
 * errno.
 */
static int qrnic_link_connect(struct qrnic_ib_dev *dev, struct qrnic_ib_share *share,
			      struct qrnic_ib_share_link *link,
			      const struct ib_qp_attr *attr,
			      const struct qrnic_qp_attr *member)
{
	struct qrnic_qp_attr init = { .port = QRNIC_IB_PORT };
	struct qrnic_qp_attr rtr = {
		.av = member->av,
		.path_mtu = iboe_get_mtu(READ_ONCE(dev->qdev->netdev->mtu)),
		.dest_qpn = cpu_to_le32(link->peer_number),
		.rq_psn = cpu_to_le32(qrnic_link_psn(share, link)),
		.options = link->options | (link->peer_number ? QRNIC_QPO_INTRODUCE : 0),
	};
	struct qrnic_qp_attr rts = {
		.sq_psn = rtr.rq_psn,
		.timeout = SHARE_TIMEOUT,
		.retry_cnt = SHARE_RETRIES,
	};
	int err;

	qrnic_carrier_path(link->carrier, attr->ah_attr.grh.sgid_attr);
	memcpy(link->dgid, member->av.dgid, sizeof(link->dgid));
	link->sgid_index = member->av.sgid_index;
	err = qrnic_link_modify(dev, link, QRNIC_QPS_INIT,
				QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT, &init);
	if (!err)
		err = qrnic_link_modify(dev, link, QRNIC_QPS_RTR,
					QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
					QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
					(rtr.options ? QRNIC_QP_OPTIONS : 0), &rtr);
	if (!err)
		err = qrnic_link_modify(dev, link, QRNIC_QPS_RTS,
					QRNIC_QP_SQ_PSN | QRNIC_QP_TIMEOUT |
					QRNIC_QP_RETRY_CNT, &rts);
	if (err)
		qrnic_link_disconnect(dev, link);
	else
		link->connected = true;
	return err;
}

static bool qrnic_link_leads(const struct qrnic_ib_share_link *link,
			     const struct qrnic_address_vector *av)
{
	return link->sgid_index == av->sgid_index &&
	       !memcmp(link->dgid, av->dgid, sizeof(link->dgid));
}

static struct qrnic_ib_share *qrnic_share_new(struct qrnic_ib_dev *dev,
					      struct qrnic_ib_ucontext *ucontext,
					      u32 number, u8 options)
{
	struct qrnic_ib_share *share = kzalloc(sizeof(*share), GFP_KERNEL_ACCOUNT);

	if (!share)
		return NULL;
	share->ucontext = ucontext;
	share->number = number;
	share->options = options;
	INIT_LIST_HEAD(&share->links);
	list_add(&share->entry, &dev->shares);
	return share;
}

static void qrnic_share_put(struct qrnic_ib_dev *dev, struct qrnic_ib_share *share)
{
	struct qrnic_ib_share_link *link, *next;

	if (--share->users)
		return;
	list_for_each_entry_safe(link, next, &share->links, entry)
		qrnic_link_remove(dev, link);
	list_del(&share->entry);
	kfree(share);
}

/*
 * Returns true if a carrier has failed, so that no new connection should use
 * the share.
 */
static bool qrnic_share_has_failed(const struct qrnic_ib_share *share)
{
	const struct qrnic_ib_share_link *link;

	list_for_each_entry(link, &share->links, entry)
		if (READ_ONCE(link->failed))
			return true;
	return false;
}

static bool qrnic_number_is_free(struct qrnic_ib_dev *dev, u32 number)
{
	const struct qrnic_ib_share *share;

	list_for_each_entry(share, &dev->shares, entry)
		if (share->ucontext && share->number == number)
			return false;
	return number;
}

/*
 * Returns the share with which this process requests connections, or an
 * ERR_PTR().
 */
static struct qrnic_ib_share *qrnic_share_offer(struct qrnic_ib_dev *dev,
						struct qrnic_ib_ucontext *ucontext,
						u8 options)
{
	struct qrnic_ib_share *share;
	u32 number;

	list_for_each_entry(share, &dev->shares, entry)
		if (share->ucontext == ucontext && share->options == options &&
		    !share->retired && !qrnic_share_has_failed(share))
			return share;
	do
		number = get_random_u32() >> 8;
	while (!qrnic_number_is_free(dev, number));
	share = qrnic_share_new(dev, ucontext, number, options);
	return share ? : ERR_PTR(-ENOMEM);
}

static bool qrnic_owner_is(const struct qrnic_ib_owner *one,
			   const struct qrnic_ib_owner *other)
{
	return uid_eq(one->user, other->user) && one->net_cookie == other->net_cookie;
}

/*
 * Returns the share with which processes of this owner reply to the number, or
 * an ERR_PTR().
 */
static struct qrnic_ib_share *qrnic_share_answer(struct qrnic_ib_dev *dev,
						 const struct qrnic_ib_owner *owner,
						 u32 number, u8 options)
{
	struct qrnic_ib_share_link *link;
	struct qrnic_ib_share *share;

	list_for_each_entry(share, &dev->shares, entry)
		if (!share->ucontext && share->number == number && !share->retired &&
		    qrnic_owner_is(&share->owner, owner) &&
		    !qrnic_share_has_failed(share))
			return share;
	share = qrnic_share_new(dev, NULL, number, options);
	if (!share)
		return ERR_PTR(-ENOMEM);
	share->owner = *owner;
	link = qrnic_link_new(dev, share, 0, options);
	if (IS_ERR(link)) {
		list_del(&share->entry);
		kfree(share);
		return ERR_CAST(link);
	}
	return share;
}

/*
 * Returns true if the MTU has room for a packet of a member in an encapsulated
 * packet.
 */
static bool qrnic_port_has_room(struct qrnic_ib_dev *dev)
{
	unsigned int mtu = READ_ONCE(dev->qdev->netdev->mtu);

	return ib_mtu_enum_to_int(iboe_get_mtu(mtu)) + QRNIC_ENCAPSULATION_OVERHEAD <= mtu;
}

static struct qrnic_ib_share_link *qrnic_answer_link(struct qrnic_ib_share *share)
{
	return list_first_entry(&share->links, struct qrnic_ib_share_link, entry);
}

/*
 * Sets *ece to the connection request of a queue pair that is not connected
 * yet. If *ece has the request of the peer, sets it to the reply. *ece also has
 * the other options of the connection. Returns 0 or a negative errno.
 */
int qrnic_share_agree(struct qrnic_ib_ucontext *ucontext, struct ib_qp *ibqp, u32 *ece)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	bool answers = *ece & QRNIC_ECE_SHARE_OFFER;
	u32 number = FIELD_GET(ECE_NUMBER, *ece);
	struct qrnic_ib_share *share;
	u8 options;

	if (ibqp->qp_type != IB_QPT_RC || qp->rss ||
	    !qrnic_ib_cap(dev, QRNIC_CAP_SHARED_CONNECTION) ||
	    !qrnic_port_has_room(dev))
		return -EOPNOTSUPP;
	if (*ece & QRNIC_ECE_SHARE_ANSWER || answers != !!number ||
	    READ_ONCE(qp->state) > IB_QPS_INIT)
		return -EINVAL;
	options = *ece & QRNIC_QPO_SELECTIVE_REPEAT &
		  qrnic_qp_options(&dev->qdev->caps);

	/*
	 * Events are flushed first, because programs see failed members before
	 * the driver receives the event of their carrier.
	 */
	qrnic_flush_events(dev->qdev);
	mutex_lock(&dev->sharing_mutex);
	share = answers ? qrnic_share_answer(dev, &ucontext->owner, number, options) :
			  qrnic_share_offer(dev, ucontext, options);
	if (!IS_ERR(share)) {
		share->users++;
		if (qp->share)
			qrnic_share_put(dev, qp->share);
		qp->share = share;
		number = answers ? qrnic_answer_link(share)->carrier->number :
				   share->number;
		*ece = FIELD_PREP(ECE_NUMBER, number) | share->options |
		       (answers ? QRNIC_ECE_SHARE_ANSWER : QRNIC_ECE_SHARE_OFFER);
	}
	qrnic_sharing_unlock(dev);
	return PTR_ERR_OR_ZERO(share);
}

/*
 * Removes the carriers without members, and retires the share, so that no new
 * connection uses it.
 */
static void qrnic_links_prune(struct qrnic_ib_dev *dev, struct qrnic_ib_share *share)
{
	struct qrnic_ib_share_link *link, *next;

	share->retired = true;
	list_for_each_entry_safe(link, next, &share->links, entry)
		if (!atomic_read(&link->carrier->members))
			qrnic_link_remove(dev, link);
}

/*
 * Returns the carrier to the peer with this number, and creates it if there is
 * none. A carrier without members to the same address but another number is
 * removed, because the peer does not use it any more. A share has at most as
 * many carriers as users.
 */
static struct qrnic_ib_share_link *qrnic_link_to(struct qrnic_ib_dev *dev,
						 struct qrnic_ib_share *share, u32 ece,
						 const struct qrnic_address_vector *av)
{
	u32 number = FIELD_GET(ECE_NUMBER, ece), links = 0;
	struct qrnic_ib_share_link *link, *next;

	list_for_each_entry_safe(link, next, &share->links, entry) {
		if (link->peer_number == number && qrnic_link_leads(link, av))
			return link;
		/*
		 * The peer uses its number for a single carrier. Here a link to
		 * the same peer and number exists, but it has another source
		 * address, so the connection cannot use it.
		 */
		if (link->peer_number == number &&
		    !memcmp(link->dgid, av->dgid, sizeof(link->dgid)))
			return ERR_PTR(-EADDRNOTAVAIL);
		if (qrnic_link_leads(link, av) && !atomic_read(&link->carrier->members))
			qrnic_link_remove(dev, link);
		else
			links++;
	}
	if (links >= share->users)
		qrnic_links_prune(dev, share);
	return qrnic_link_new(dev, share, number, share->options & ece);
}

static struct qrnic_ib_share_link *qrnic_link_of(struct qrnic_ib_dev *dev,
						 struct qrnic_ib_share *share, u32 ece,
						 const struct qrnic_address_vector *av)
{
	struct qrnic_ib_share_link *link;

	if (share->ucontext)
		return qrnic_link_to(dev, share, ece, av);
	link = qrnic_answer_link(share);
	if (link->carrier->number != FIELD_GET(ECE_NUMBER, ece))
		return ERR_PTR(-EINVAL);
	if (link->connected && !qrnic_link_leads(link, av)) {
		/*
		 * Two processes of other nodes use the same number. The path
		 * was unknown at the time of the reply, so later replies name
		 * another carrier. The connections of one of the two processes
		 * will use that carrier.
		 */
		share->retired = true;
		return ERR_PTR(-EADDRNOTAVAIL);
	}
	return link;
}

/* Frees the objects of a queue pair that did not become a member. */
static void qrnic_link_undo(struct qrnic_ib_dev *dev, struct qrnic_ib_share *share,
			    struct qrnic_ib_share_link *link)
{
	if (share->ucontext)
		qrnic_link_remove(dev, link);
	else if (link->connected)
		qrnic_link_disconnect(dev, link);
}

/*
 * Adds a member to the carrier that both ends have agreed on in ece, and
 * connects the carrier if it is the first member. Called for a queue pair that
 * moves to RTR, after its transition was checked. The caller holds
 * sharing_mutex, and calls qrnic_share_abandon() if the queue pair does not
 * become a member. Returns the carrier or an ERR_PTR().
 */
struct qrnic_ib_carrier *qrnic_share_join(struct qrnic_ib_qp *qp, u32 ece,
					  const struct ib_qp_attr *attr,
					  const struct qrnic_qp_attr *hw)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	struct qrnic_ib_share_link *link;
	int err;

	if (!(ece & QRNIC_ECE_SHARE_ANSWER) || !(ece & ECE_NUMBER) || !qp->share)
		return ERR_PTR(-EINVAL);

	link = qrnic_link_of(dev, qp->share, ece, &hw->av);
	if (IS_ERR(link))
		return ERR_CAST(link);
	if (READ_ONCE(link->failed))
		return ERR_PTR(-ENOTCONN);
	if (!link->connected) {
		err = qrnic_link_connect(dev, qp->share, link, attr, hw);
		if (err) {
			qrnic_link_undo(dev, qp->share, link);
			return ERR_PTR(err);
		}
	}
	qrnic_carrier_enter(link->carrier);
	return link->carrier;
}

/*
 * Removes the member that qrnic_share_join() added. If the carrier has no other
 * member, the next member may choose another path. The caller holds
 * sharing_mutex.
 */
void qrnic_share_abandon(struct qrnic_ib_qp *qp, struct qrnic_ib_carrier *carrier)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	struct qrnic_ib_share_link *link;

	list_for_each_entry(link, &qp->share->links, entry)
		if (link->carrier == carrier)
			break;
	/* The link has a reference, so this call does not free the carrier. */
	qrnic_carrier_leave(carrier);
	if (!WARN_ON(list_entry_is_head(link, &qp->share->links, entry)) &&
	    !atomic_read(&carrier->members))
		qrnic_link_undo(dev, qp->share, link);
}

/*
 * Retires the number of a queue pair whose connection was rejected, by this end
 * or by the peer. Other connections with the number might be rejected, too. The
 * caller holds sharing_mutex.
 */
void qrnic_share_refused(struct qrnic_ib_qp *qp)
{
	if (qp->share && qp->share->ucontext)
		qp->share->retired = true;
}

/*
 * Releases the share of a queue pair. Called at the end of its destruction,
 * after the queue pair has left its carrier.
 */
void qrnic_share_leave(struct qrnic_ib_qp *qp)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);

	if (!qp->share)
		return;
	mutex_lock(&dev->sharing_mutex);
	qrnic_share_put(dev, qp->share);
	qrnic_sharing_unlock(dev);
	qp->share = NULL;
}

/*
 * Handles the event that a carrier of the driver is in ERR. The lock of the
 * xarray is enough, because qrnic_link_remove() erases the link under it.
 */
void qrnic_share_event(struct qrnic_ib_dev *dev, u32 number)
{
	struct qrnic_ib_share_link *link;
	unsigned long flags;

	xa_lock_irqsave(&dev->share_links, flags);
	link = xa_load(&dev->share_links, number);
	if (link)
		WRITE_ONCE(link->failed, true);
	xa_unlock_irqrestore(&dev->share_links, flags);
}

void qrnic_sharing_init(struct qrnic_ib_dev *dev)
{
	mutex_init(&dev->sharing_mutex);
	INIT_LIST_HEAD(&dev->shares);
	INIT_LIST_HEAD(&dev->dead_links);
	xa_init_flags(&dev->share_links, XA_FLAGS_LOCK_IRQ);
}
