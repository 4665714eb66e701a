// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * uapi.c: methods that the driver adds to uverbs: the clock, attributes of a
 * context and a PD that a process imports, and doorbell pages. There are also
 * mappings of device memory, priorities of queue pairs, shared connections, and
 * keys that work requests make valid.
 *
 * The RDMA core looks up the objects in the arguments and locks them during a
 * call. User space finds the numbers of methods and attributes in
 * uapi/rdma/qrnic-abi.h.
 */
#define UVERBS_MODULE_NAME qrnic_ib
#include <rdma/uverbs_named_ioctl.h>

#include "memory.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "verbs.h"

/*
 * Returns the clock. This method is needed because the clock is a register of
 * BAR 0, which processes cannot map.
 */
static int UVERBS_HANDLER(QRNIC_METHOD_QUERY_CLOCK)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibucontext = ib_uverbs_get_ucontext(attrs);
	struct qrnic_ib_dev *dev;
	u64 clock;

	if (IS_ERR(ibucontext))
		return PTR_ERR(ibucontext);

	dev = to_qrnic_dev(ibucontext->device);
	if (!qrnic_ib_cap(dev, QRNIC_CAP_TIMESTAMP))
		return -EOPNOTSUPP;

	clock = qrnic_clock_ns(dev->qdev);
	return uverbs_copy_to(attrs, QRNIC_ATTR_QUERY_CLOCK_VALUE, &clock,
			      sizeof(clock));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_QUERY_CLOCK,
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_QUERY_CLOCK_VALUE,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY));

ADD_UVERBS_METHODS(device_methods, UVERBS_OBJECT_DEVICE,
		   &UVERBS_METHOD(QRNIC_METHOD_QUERY_CLOCK));

int qrnic_ib_query_ucontext(struct ib_ucontext *ibucontext,
			    struct uverbs_attr_bundle *attrs)
{
	struct qrnic_alloc_ucontext_resp response = {};

	/* Only a process that imports the context requests the attribute. */
	if (!uverbs_attr_is_valid(attrs, QRNIC_ATTR_QUERY_CONTEXT_RESP))
		return 0;
	qrnic_ucontext_response(to_qrnic_ucontext(ibucontext), &response);
	return uverbs_copy_to_struct_or_zero(attrs, QRNIC_ATTR_QUERY_CONTEXT_RESP,
					     &response, sizeof(response));
}

#define CONTEXT_RESPONSE \
	UVERBS_ATTR_STRUCT(struct qrnic_alloc_ucontext_resp, max_srq_wr)

ADD_UVERBS_ATTRIBUTES_SIMPLE(query_context, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_QUERY_CONTEXT_RESP,
						 CONTEXT_RESPONSE, UA_OPTIONAL));

static int UVERBS_HANDLER(QRNIC_METHOD_PD_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_pd *ibpd = uverbs_attr_get_obj(attrs, QRNIC_ATTR_PD_QUERY_HANDLE);
	struct qrnic_ib_pd *pd;
	u32 key;
	int err;

	if (IS_ERR(ibpd))
		return PTR_ERR(ibpd);

	pd = to_qrnic_pd(ibpd);
	err = uverbs_copy_to(attrs, QRNIC_ATTR_PD_QUERY_PDN, &pd->pdn,
			     sizeof(pd->pdn));
	if (err || !uverbs_attr_is_valid(attrs, QRNIC_ATTR_PD_QUERY_NULL_KEY))
		return err;

	err = qrnic_pd_null_key(pd, &key);
	if (err)
		return err;
	return uverbs_copy_to(attrs, QRNIC_ATTR_PD_QUERY_NULL_KEY, &key,
			      sizeof(key));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_PD_QUERY,
			    UVERBS_ATTR_IDR(QRNIC_ATTR_PD_QUERY_HANDLE,
					    UVERBS_OBJECT_PD, UVERBS_ACCESS_READ,
					    UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_PD_QUERY_PDN,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_PD_QUERY_NULL_KEY,
						UVERBS_ATTR_TYPE(u32),
						UA_OPTIONAL));

ADD_UVERBS_METHODS(pd_methods, UVERBS_OBJECT_PD,
		   &UVERBS_METHOD(QRNIC_METHOD_PD_QUERY));

static int UVERBS_HANDLER(QRNIC_METHOD_DM_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm = uverbs_attr_get_obj(attrs, QRNIC_ATTR_DM_QUERY_HANDLE);
	u64 offset, length;
	int err;

	if (IS_ERR(ibdm))
		return PTR_ERR(ibdm);

	offset = rdma_user_mmap_get_offset(&to_qrnic_dm(ibdm)->map.entry);
	length = ibdm->length;
	err = uverbs_copy_to(attrs, QRNIC_ATTR_DM_QUERY_OFFSET, &offset,
			     sizeof(offset));
	if (err)
		return err;
	return uverbs_copy_to(attrs, QRNIC_ATTR_DM_QUERY_LENGTH, &length,
			      sizeof(length));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_DM_QUERY,
			    UVERBS_ATTR_IDR(QRNIC_ATTR_DM_QUERY_HANDLE,
					    UVERBS_OBJECT_DM, UVERBS_ACCESS_READ,
					    UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_DM_QUERY_OFFSET,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_DM_QUERY_LENGTH,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY));

ADD_UVERBS_METHODS(dm_methods, UVERBS_OBJECT_DM,
		   &UVERBS_METHOD(QRNIC_METHOD_DM_QUERY));

static int
UVERBS_HANDLER(QRNIC_METHOD_QP_QUERY_PRIORITY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp =
		uverbs_attr_get_obj(attrs, QRNIC_ATTR_QP_QUERY_PRIORITY_HANDLE);
	u32 priority, level;
	int err;

	if (IS_ERR(ibqp))
		return PTR_ERR(ibqp);

	err = qrnic_ib_query_priority(ibqp, &priority, &level);
	if (err)
		return err;
	err = uverbs_copy_to(attrs, QRNIC_ATTR_QP_QUERY_PRIORITY_PRIORITY,
			     &priority, sizeof(priority));
	if (err)
		return err;
	return uverbs_copy_to(attrs, QRNIC_ATTR_QP_QUERY_PRIORITY_LEVEL, &level,
			      sizeof(level));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_QP_QUERY_PRIORITY,
			    UVERBS_ATTR_IDR(QRNIC_ATTR_QP_QUERY_PRIORITY_HANDLE,
					    UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
					    UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_QP_QUERY_PRIORITY_PRIORITY,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_QP_QUERY_PRIORITY_LEVEL,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY));

static int UVERBS_HANDLER(QRNIC_METHOD_QP_SHARE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, QRNIC_ATTR_QP_SHARE_HANDLE);
	struct ib_ucontext *ibucontext = ib_uverbs_get_ucontext(attrs);
	u32 ece;
	int err;

	if (IS_ERR(ibqp))
		return PTR_ERR(ibqp);
	if (IS_ERR(ibucontext))
		return PTR_ERR(ibucontext);
	err = uverbs_copy_from(&ece, attrs, QRNIC_ATTR_QP_SHARE_WANTED);
	if (!err)
		err = qrnic_share_agree(to_qrnic_ucontext(ibucontext), ibqp, &ece);
	if (err)
		return err;
	return uverbs_copy_to(attrs, QRNIC_ATTR_QP_SHARE_AGREED, &ece, sizeof(ece));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_QP_SHARE,
			    UVERBS_ATTR_IDR(QRNIC_ATTR_QP_SHARE_HANDLE,
					    UVERBS_OBJECT_QP, UVERBS_ACCESS_WRITE,
					    UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(QRNIC_ATTR_QP_SHARE_WANTED,
					       UVERBS_ATTR_TYPE(u32), UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_QP_SHARE_AGREED,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY));

ADD_UVERBS_METHODS(qp_methods, UVERBS_OBJECT_QP,
		   &UVERBS_METHOD(QRNIC_METHOD_QP_QUERY_PRIORITY),
		   &UVERBS_METHOD(QRNIC_METHOD_QP_SHARE));

static int qrnic_db_page_cleanup(struct ib_uobject *uobject,
				 enum rdma_remove_reason why,
				 struct uverbs_attr_bundle *attrs)
{
	qrnic_db_page_destroy(uobject->object);
	return 0;
}

static int UVERBS_HANDLER(QRNIC_METHOD_DB_PAGE_ALLOC)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject =
		uverbs_attr_get_uobject(attrs, QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE);
	struct ib_ucontext *ibucontext = ib_uverbs_get_ucontext(attrs);
	u32 length, number;
	struct qrnic_ib_db_page *page;
	u64 offset;
	int err;

	if (IS_ERR(ibucontext))
		return PTR_ERR(ibucontext);

	page = qrnic_db_page_create(to_qrnic_ucontext(ibucontext));
	if (IS_ERR(page))
		return PTR_ERR(page);

	offset = rdma_user_mmap_get_offset(&page->map.entry);
	length = qrnic_db_page_bytes(page);
	number = page->number;
	uobject->object = page;
	uverbs_finalize_uobj_create(attrs, QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE);

	err = uverbs_copy_to(attrs, QRNIC_ATTR_DB_PAGE_ALLOC_OFFSET, &offset,
			     sizeof(offset));
	if (err)
		return err;
	err = uverbs_copy_to(attrs, QRNIC_ATTR_DB_PAGE_ALLOC_LENGTH, &length,
			     sizeof(length));
	if (err)
		return err;
	return uverbs_copy_to(attrs, QRNIC_ATTR_DB_PAGE_ALLOC_NUMBER, &number,
			      sizeof(number));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_DB_PAGE_ALLOC,
			    UVERBS_ATTR_IDR(QRNIC_ATTR_DB_PAGE_ALLOC_HANDLE,
					    QRNIC_OBJECT_DB_PAGE,
					    UVERBS_ACCESS_NEW, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_DB_PAGE_ALLOC_OFFSET,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_DB_PAGE_ALLOC_LENGTH,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_DB_PAGE_ALLOC_NUMBER,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(QRNIC_METHOD_DB_PAGE_FREE,
				    UVERBS_ATTR_IDR(QRNIC_ATTR_DB_PAGE_FREE_HANDLE,
						    QRNIC_OBJECT_DB_PAGE,
						    UVERBS_ACCESS_DESTROY,
						    UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(QRNIC_OBJECT_DB_PAGE,
			    UVERBS_TYPE_ALLOC_IDR(qrnic_db_page_cleanup),
			    &UVERBS_METHOD(QRNIC_METHOD_DB_PAGE_ALLOC),
			    &UVERBS_METHOD(QRNIC_METHOD_DB_PAGE_FREE));

static int qrnic_mkey_cleanup(struct ib_uobject *uobject, enum rdma_remove_reason why,
			      struct uverbs_attr_bundle *attrs)
{
	qrnic_user_mkey_destroy(uobject->object);
	return 0;
}

static int UVERBS_HANDLER(QRNIC_METHOD_MKEY_CREATE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject =
		uverbs_attr_get_uobject(attrs, QRNIC_ATTR_MKEY_CREATE_HANDLE);
	struct ib_pd *ibpd = uverbs_attr_get_obj(attrs, QRNIC_ATTR_MKEY_CREATE_PD);
	struct ib_ucontext *ibucontext = ib_uverbs_get_ucontext(attrs);
	u32 kind = QRNIC_MKEY_KIND_INDIRECT;
	struct qrnic_ib_mkey *mkey;
	u32 max_pieces, key;
	int err;

	if (IS_ERR(ibpd))
		return PTR_ERR(ibpd);
	if (IS_ERR(ibucontext))
		return PTR_ERR(ibucontext);

	err = uverbs_copy_from(&max_pieces, attrs, QRNIC_ATTR_MKEY_CREATE_MAX_PIECES);
	if (err)
		return err;
	err = uverbs_copy_from(&kind, attrs, QRNIC_ATTR_MKEY_CREATE_KIND);
	if (err && err != -ENOENT)
		return err;

	if (kind > QRNIC_MKEY_KIND_PROCESS)
		return -EOPNOTSUPP;
	if (kind == QRNIC_MKEY_KIND_PROCESS && max_pieces)
		return -EINVAL;
	if (kind == QRNIC_MKEY_KIND_PROCESS)
		mkey = qrnic_process_mkey_create(to_qrnic_ucontext(ibucontext), ibpd,
						 &key);
	else
		mkey = qrnic_indirect_create(ibpd, max_pieces, &key);
	if (IS_ERR(mkey))
		return PTR_ERR(mkey);

	uobject->object = mkey;
	uverbs_finalize_uobj_create(attrs, QRNIC_ATTR_MKEY_CREATE_HANDLE);
	return uverbs_copy_to(attrs, QRNIC_ATTR_MKEY_CREATE_KEY, &key, sizeof(key));
}

DECLARE_UVERBS_NAMED_METHOD(QRNIC_METHOD_MKEY_CREATE,
			    UVERBS_ATTR_IDR(QRNIC_ATTR_MKEY_CREATE_HANDLE,
					    QRNIC_OBJECT_MKEY,
					    UVERBS_ACCESS_NEW, UA_MANDATORY),
			    UVERBS_ATTR_IDR(QRNIC_ATTR_MKEY_CREATE_PD,
					    UVERBS_OBJECT_PD, UVERBS_ACCESS_READ,
					    UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(QRNIC_ATTR_MKEY_CREATE_MAX_PIECES,
					       UVERBS_ATTR_TYPE(u32),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(QRNIC_ATTR_MKEY_CREATE_KEY,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(QRNIC_ATTR_MKEY_CREATE_KIND,
					       UVERBS_ATTR_TYPE(u32),
					       UA_OPTIONAL));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(QRNIC_METHOD_MKEY_DESTROY,
				    UVERBS_ATTR_IDR(QRNIC_ATTR_MKEY_DESTROY_HANDLE,
						    QRNIC_OBJECT_MKEY,
						    UVERBS_ACCESS_DESTROY,
						    UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(QRNIC_OBJECT_MKEY,
			    UVERBS_TYPE_ALLOC_IDR(qrnic_mkey_cleanup),
			    &UVERBS_METHOD(QRNIC_METHOD_MKEY_CREATE),
			    &UVERBS_METHOD(QRNIC_METHOD_MKEY_DESTROY));

const struct uapi_definition qrnic_uapi_definitions[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &device_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &query_context),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_PD, &pd_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &dm_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &qp_methods),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(QRNIC_OBJECT_DB_PAGE),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(QRNIC_OBJECT_MKEY),
	{}
};
