// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * carrier.c: carrier QPs of shared connections (manual, Shared connections):
 * the creation of a carrier, its members, and its lifetime.
 *
 * A process creates a carrier by a queue pair of type DRIVER (qp.c), or
 * sharing.c creates one without a queue pair. Each member has a reference. The
 * process of a carrier may destroy its queue pair, or end, while queue pairs of
 * other processes are members. Afterwards no new member can find the carrier,
 * and the last member destroys it. The mutex of the QP, or sharing_mutex,
 * protects the path.
 */
#include <linux/cgroup_rdma.h>
#include <linux/random.h>
#include <rdma/ib_cache.h>

#include "qp.h"
#include "qrnic_ib.h"

#ifdef CONFIG_CGROUP_RDMA
/*
 * Charges the process for a queue pair of the device. The charge of uverbs for
 * the object does not suffice, because a carrier may outlive its object, and a
 * carrier of sharing.c has none.
 */
static int qrnic_carrier_charge(struct qrnic_ib_carrier *carrier)
{
	return rdmacg_try_charge(&carrier->cgroup, &carrier->dev->ibdev.cg_device,
				 RDMACG_RESOURCE_HCA_OBJECT);
}

static void qrnic_carrier_uncharge(struct qrnic_ib_carrier *carrier)
{
	rdmacg_uncharge(carrier->cgroup, &carrier->dev->ibdev.cg_device,
			RDMACG_RESOURCE_HCA_OBJECT);
}
#else
static int qrnic_carrier_charge(struct qrnic_ib_carrier *carrier)
{
	return 0;
}

static void qrnic_carrier_uncharge(struct qrnic_ib_carrier *carrier)
{
}
#endif

static struct qrnic_ib_carrier *qrnic_carrier_alloc(struct qrnic_ib_dev *dev)
{
	struct qrnic_ib_carrier *carrier = kzalloc(sizeof(*carrier),
						   GFP_KERNEL_ACCOUNT);
	int err;

	if (!carrier)
		return ERR_PTR(-ENOMEM);
	kref_init(&carrier->users);
	carrier->dev = dev;
	err = qrnic_carrier_charge(carrier);
	if (err) {
		kfree(carrier);
		return ERR_PTR(err);
	}
	return carrier;
}

/*
 * Prepares the carrier of a queue pair that is being created. The queue pair is
 * only a handle of the carrier: uverbs requires a PD and CQs, which are unused.
 * The key is random, so that no process can guess the key of another process's
 * carrier.
 */
int qrnic_carrier_prepare(struct qrnic_ib_qp *qp, const struct ib_qp_init_attr *init,
			  const struct qrnic_create_qp_req *request)
{
	struct qrnic_ib_carrier *carrier;

	if (init->srq || request->comp_mask ||
	    memchr_inv(&init->cap, 0, sizeof(init->cap)) ||
	    memchr_inv(&request->buf_addr, 0,
		       sizeof(*request) -
		       offsetof(struct qrnic_create_qp_req, buf_addr)))
		return -EINVAL;

	carrier = qrnic_carrier_alloc(to_qrnic_dev(qp->ibqp.device));
	if (IS_ERR(carrier))
		return PTR_ERR(carrier);
	do
		carrier->key = get_random_u64();
	while (!carrier->key);
	qp->is_carrier = true;
	RCU_INIT_POINTER(qp->carrier, carrier);
	return 0;
}

/* Frees the carrier of a queue pair that could not be created in the device. */
void qrnic_carrier_unprepare(struct qrnic_ib_qp *qp)
{
	struct qrnic_ib_carrier *carrier = rcu_dereference_protected(qp->carrier, true);

	if (!carrier)
		return;
	qrnic_carrier_uncharge(carrier);
	kfree(carrier);
}

/*
 * Sets the source GID of the path; if sgid is NULL, the path has none. The
 * reference to the GID entry prevents that the entry gets another address.
 */
void qrnic_carrier_path(struct qrnic_ib_carrier *carrier,
			const struct ib_gid_attr *sgid)
{
	if (sgid)
		rdma_hold_gid_attr(sgid);
	if (carrier->sgid)
		rdma_put_gid_attr(carrier->sgid);
	carrier->sgid = sgid;
}

/*
 * Destroys the carrier in the device. No new member can find it, because its
 * queue pair or its share has released its reference.
 */
static void qrnic_carrier_release(struct kref *users)
{
	struct qrnic_ib_carrier *carrier =
		container_of(users, struct qrnic_ib_carrier, users);
	struct qrnic_ib_dev *dev = carrier->dev;
	struct qrnic_ib_number retired;

	qrnic_number_retire(dev, &retired, &dev->qps, carrier->number);
	qrnic_destroy(dev, QRNIC_CMD_DESTROY_QP, carrier->number);
	qrnic_flush_events(dev->qdev);
	qrnic_number_release(dev, &retired);
	qrnic_carrier_path(carrier, NULL);
	qrnic_carrier_uncharge(carrier);
	kfree_rcu(carrier, rcu);
}

/*
 * Creates a carrier without a queue pair and a key. Only sharing.c uses it, and
 * releases it with qrnic_carrier_put(). Returns the carrier or an ERR_PTR().
 */
struct qrnic_ib_carrier *qrnic_carrier_create(struct qrnic_ib_dev *dev)
{
	const struct qrnic_qp_ctx context = { .type = QRNIC_QPT_CARRIER };
	struct qrnic_ib_carrier *carrier = qrnic_carrier_alloc(dev);
	int err;

	if (IS_ERR(carrier))
		return carrier;
	err = qrnic_create_24_bits(dev, QRNIC_CMD_CREATE_QP, QRNIC_CMD_DESTROY_QP,
				   &context, sizeof(context), &carrier->number);
	if (err) {
		qrnic_carrier_uncharge(carrier);
		kfree(carrier);
		return ERR_PTR(err);
	}
	qrnic_number_await(dev, &dev->qps, carrier->number);
	return carrier;
}

/* Releases a reference. The last one destroys the carrier; sleeps then. */
void qrnic_carrier_put(struct qrnic_ib_carrier *carrier)
{
	kref_put(&carrier->users, qrnic_carrier_release);
}

/* Adds a member. qrnic_carrier_leave() removes the member. */
void qrnic_carrier_enter(struct qrnic_ib_carrier *carrier)
{
	kref_get(&carrier->users);
	atomic_inc(&carrier->members);
}

/*
 * Adds a member to the carrier with this number and key. The key is the only
 * protection, because the tool rdma shows the numbers of carriers to every
 * user. Returns the carrier, or ERR_PTR(-EACCES) if there is none with both.
 */
struct qrnic_ib_carrier *qrnic_carrier_join(struct qrnic_ib_dev *dev, u32 number,
					    u64 key)
{
	struct qrnic_ib_carrier *carrier, *joined = ERR_PTR(-EACCES);
	struct qrnic_ib_qp *qp = qrnic_qp_get(dev, number);

	if (!qp)
		return joined;
	if (qp->is_carrier) {
		/*
		 * The pointer needs no RCU, because the queue pair keeps its
		 * carrier until its destruction. The destruction waits for the
		 * reference to the queue pair that this function holds.
		 */
		carrier = rcu_dereference_protected(qp->carrier, true);
		if (carrier->key == key) {
			qrnic_carrier_enter(carrier);
			joined = carrier;
		}
	}
	qrnic_qp_put(qp);
	return joined;
}

/*
 * Removes a member that the device has destroyed or never had. The caller must
 * not hold the mutex of a queue pair, because the last member destroys the
 * carrier.
 */
void qrnic_carrier_leave(struct qrnic_ib_carrier *carrier)
{
	atomic_dec(&carrier->members);
	qrnic_carrier_put(carrier);
}

static struct qrnic_ib_carrier *qrnic_carrier_replace(struct qrnic_ib_qp *qp,
						      struct qrnic_ib_carrier *carrier)
{
	return rcu_replace_pointer(qp->carrier, carrier,
				   lockdep_is_held(&qp->mutex));
}

/*
 * Updates the carrier of a queue pair that was modified. The argument joined is
 * the carrier that the queue pair has become a member of, or NULL. Returns the
 * carrier that the caller must leave, or NULL. Called under the mutex of the
 * QP.
 */
struct qrnic_ib_carrier *qrnic_carrier_changed(struct qrnic_ib_qp *qp,
					       struct qrnic_ib_carrier *joined,
					       const struct ib_qp_attr *attr, int mask,
					       enum ib_qp_state state)
{
	struct qrnic_ib_carrier *carrier =
		rcu_dereference_protected(qp->carrier,
					  lockdep_is_held(&qp->mutex));

	if (!qp->is_carrier)
		return joined || state == IB_QPS_RESET ?
			       qrnic_carrier_replace(qp, joined) : NULL;
	if (mask & IB_QP_AV)
		qrnic_carrier_path(carrier, attr->ah_attr.grh.sgid_attr);
	else if (state == IB_QPS_RESET)
		qrnic_carrier_path(carrier, NULL);
	return NULL;
}

/*
 * Releases the carrier at the end of the queue pair's destruction. A carrier
 * with members stays.
 */
void qrnic_carrier_drop(struct qrnic_ib_qp *qp)
{
	struct qrnic_ib_carrier *carrier;

	mutex_lock(&qp->mutex);
	carrier = qrnic_carrier_replace(qp, NULL);
	mutex_unlock(&qp->mutex);
	if (!carrier)
		return;
	if (qp->is_carrier)
		qrnic_carrier_put(carrier);
	else
		qrnic_carrier_leave(carrier);
}

/*
 * Resolves MAC address and hop limit of the destination of a carrier. An
 * address handle is created for this purpose, because the RDMA core resolves
 * only address handles and its own connected types of QP.
 */
int qrnic_carrier_resolve(struct qrnic_ib_qp *qp, struct rdma_ah_attr *attr)
{
	struct ib_ah *ah = rdma_create_user_ah(qp->ibqp.pd, attr, NULL);

	if (IS_ERR(ah))
		return PTR_ERR(ah);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return 0;
}
