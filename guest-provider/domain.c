// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * domain.c: protection domains, thread domains and parent domains.
 *
 * Thread domains and parent domains exist only in the library, except the
 * doorbell page of a thread domain. The callers are libibverbs, through the
 * operations of qrnic.c, and files that create queues. No lock is needed,
 * because the counters of users are atomic.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <infiniband/cmd_ioctl.h>

#include "commands.h"
#include "qrnic.h"

struct ibv_pd *qrnic_alloc_pd(struct ibv_context *context)
{
	struct qrnic_alloc_pd_cmd_resp resp = {};
	struct ibv_alloc_pd cmd = {};
	struct qrnic_pd *pd;
	int err;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	err = ibv_cmd_alloc_pd(context, &pd->pd, &cmd, sizeof(cmd),
			       &resp.ibv_resp, sizeof(resp));
	if (err) {
		free(pd);
		errno = err;
		return NULL;
	}
	return &pd->pd;
}

static int pd_query(struct ibv_context *context, uint32_t handle,
		    uint32_t *null_key)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_PD, QRNIC_METHOD_PD_QUERY, 3);
	uint32_t pdn;
	int err;

	fill_attr_in_obj(cmd, QRNIC_ATTR_PD_QUERY_HANDLE, handle);
	/*
	 * The method requires this attribute, so it is read although it is not
	 * used
	 */
	fill_attr_out_ptr(cmd, QRNIC_ATTR_PD_QUERY_PDN, &pdn);
	if (null_key)
		fill_attr_out_ptr(cmd, QRNIC_ATTR_PD_QUERY_NULL_KEY, null_key);
	err = execute_ioctl(context, cmd);
	/*
	 * An older driver does not know the method, so the error is translated
	 */
	return err == EPROTONOSUPPORT ? EOPNOTSUPP : err;
}

int qrnic_pd_null_key(struct ibv_pd *pd, uint32_t *key)
{
	return pd_query(pd->context, pd->handle, key);
}

struct ibv_pd *qrnic_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct qrnic_pd *pd;
	int err;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	/*
	 * The query checks the handle, because the kernel has no command that
	 * imports a PD
	 */
	err = pd_query(context, handle, NULL);
	if (err) {
		free(pd);
		errno = err;
		return NULL;
	}
	pd->pd.context = context;
	pd->pd.handle = handle;
	return &pd->pd;
}

/*
 * Frees only the local object. The PD exists until the exporting process
 * deallocates it.
 */
void qrnic_unimport_pd(struct ibv_pd *ibpd)
{
	free(to_qrnic_pd(ibpd));
}

struct ibv_pd *
qrnic_alloc_parent_domain(struct ibv_context *context,
			  struct ibv_parent_domain_init_attr *attr)
{
	struct qrnic_pd *parent, *base;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (!check_comp_mask(attr->comp_mask,
			     IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			     QRNIC_COMPAT_DOMAIN_ALLOWS)) {
		errno = EINVAL;
		return NULL;
	}

	parent = calloc(1, sizeof(*parent));
	if (!parent)
		return NULL;

	base = to_qrnic_pd(attr->pd);
	/*
	 * The parent domain of a parent domain has the same PD, so base never
	 * is a parent domain itself
	 */
	if (base->base)
		base = base->base;
	ibv_initialize_parent_domain(&parent->pd, &base->pd);
	parent->base = base;
	atomic_fetch_add(&base->users, 1);
	if (attr->td) {
		parent->td = to_qrnic_td(attr->td);
		atomic_fetch_add(&parent->td->users, 1);
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		parent->alloc = attr->alloc;
		parent->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		parent->pd_context = attr->pd_context;
	return &parent->pd;
}

int qrnic_dealloc_pd(struct ibv_pd *ibpd)
{
	struct qrnic_pd *pd = to_qrnic_pd(ibpd);
	int err;

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->base) {
		atomic_fetch_sub(&pd->base->users, 1);
		if (pd->td)
			atomic_fetch_sub(&pd->td->users, 1);
	} else {
		err = ibv_cmd_dealloc_pd(ibpd);
		if (err)
			return err;
	}
	free(pd);
	return 0;
}

/*
 * Counts a queue as a user of its parent domain, so that the parent domain
 * cannot be deallocated before. Returns NULL for a protection domain.
 */
struct qrnic_pd *qrnic_pd_use(struct ibv_pd *ibpd)
{
	struct qrnic_pd *pd = to_qrnic_pd(ibpd);

	if (!pd->base)
		return NULL;
	atomic_fetch_add(&pd->users, 1);
	return pd;
}

void qrnic_pd_unuse(struct qrnic_pd *pd)
{
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
}

static int db_free(struct ibv_context *context, uint32_t handle)
{
	DECLARE_COMMAND_BUFFER(cmd, QRNIC_OBJECT_DB_PAGE,
			       QRNIC_METHOD_DB_PAGE_FREE, 1);

	fill_attr_in_obj(cmd, QRNIC_ATTR_DB_PAGE_FREE_HANDLE, handle);
	return execute_ioctl(context, cmd);
}

/* Allocates and maps a doorbell page for the thread domain. */
static int td_alloc_db(struct ibv_context *context, struct qrnic_td *td)
{
	DECLARE_COMMAND_BUFFER(cmd, QRNIC_OBJECT_DB_PAGE,
			       QRNIC_METHOD_DB_PAGE_ALLOC, 4);
	struct ib_uverbs_attr *handle;
	uint32_t number, length;
	uint64_t offset;
	void *page;
	int err;

	handle = fill_attr_out_obj(cmd, QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_DB_PAGE_ALLOC_OFFSET, &offset);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_DB_PAGE_ALLOC_LENGTH, &length);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_DB_PAGE_ALLOC_NUMBER, &number);
	err = execute_ioctl(context, cmd);
	if (err)
		return err;

	td->db_handle = read_attr_obj(QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE, handle);
	if (length < QRNIC_DB_PAGE_SIZE) {
		err = EPROTO;
		goto err_free;
	}
	page = mmap(NULL, length, PROT_WRITE, MAP_SHARED, context->cmd_fd,
		    offset);
	if (page == MAP_FAILED) {
		err = errno;
		goto err_free;
	}
	td->db.page = page;
	td->db.length = length;
	td->db.number = number;
	td->db.direct_wqe = to_qrnic_context(context)->direct_wqe;
	/* The window needs no lock, because only one thread uses the page */
	qrnic_lock_init(&td->db.window_lock, false);
	td->own_db = true;
	return 0;

err_free:
	db_free(context, td->db_handle);
	return err;
}

struct ibv_td *qrnic_alloc_td(struct ibv_context *context,
			      struct ibv_td_init_attr *attr)
{
	struct qrnic_td *td;
	int err;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;

	td->td.context = context;
	err = td_alloc_db(context, td);
	/*
	 * An older driver has no such pages. The thread domain is still useful,
	 * because its queues need no locks.
	 */
	if (err && err != EPROTONOSUPPORT && err != EOPNOTSUPP) {
		free(td);
		errno = err;
		return NULL;
	}
	return &td->td;
}

int qrnic_dealloc_td(struct ibv_td *ibtd)
{
	struct qrnic_td *td = to_qrnic_td(ibtd);
	int err;

	if (atomic_load(&td->users))
		return EBUSY;
	if (td->own_db) {
		munmap(td->db.page, td->db.length);
		qrnic_lock_destroy(&td->db.window_lock);
		err = db_free(ibtd->context, td->db_handle);
		if (err) {
			/*
			 * The error is only reported, because the page is
			 * unused and is freed with the context
			 */
			verbs_err(verbs_get_ctx(ibtd->context),
				  "cannot free doorbell page %u: error %d\n",
				  td->db.number, err);
		}
	}
	free(td);
	return 0;
}
