package extant

/*
#include <extant.h>
*/
import "C"

import (
	"syscall"
	"time"
)

// ACLTag says what an [ACLEntry] is about.
type ACLTag uint32

// What an entry is about, in the order in which entries stand in a list.
const (
	ACLOwner      ACLTag = C.EXTANT_ACL_USER_OBJ
	ACLUser       ACLTag = C.EXTANT_ACL_USER // the user of ID
	ACLGroup      ACLTag = C.EXTANT_ACL_GROUP_OBJ
	ACLNamedGroup ACLTag = C.EXTANT_ACL_GROUP // the group of ID
	ACLMask       ACLTag = C.EXTANT_ACL_MASK
	ACLOther      ACLTag = C.EXTANT_ACL_OTHER
)

// ACLEntry is an entry of an access control list, as acl(5) has it.
type ACLEntry struct {
	Tag         ACLTag
	ID          uint32 // of ACLUser and ACLNamedGroup; otherwise 0
	Permissions uint32 // read 4, write 2, execute 1
}

// ACLKind is one of the two lists of a file.
type ACLKind uint32

// The lists of a file: that by which access is granted, and of a directory that which new files in
// it get.
const (
	ACLAccess  ACLKind = C.EXTANT_ACL_ACCESS
	ACLDefault ACLKind = C.EXTANT_ACL_DEFAULT
)

// ACL gives an access control list of a file, which is empty if it has none.
func (f *FS) ACL(name string, kind ACLKind) ([]ACLEntry, error) {
	for {
		count, err := f.on("getacl", name, func(fs *C.extant_fs, name *C.char) C.int64_t {
			return C.extant_get_acl(fs, name, C.uint32_t(kind), nil, 0)
		})
		if err != nil || count == 0 {
			return nil, err
		}
		found := make([]C.struct_extant_acl_entry, count)
		count, err = f.on("getacl", name, func(fs *C.extant_fs, name *C.char) C.int64_t {
			return C.extant_get_acl(fs, name, C.uint32_t(kind), &found[0], C.size_t(len(found)))
		})
		if isErrno(err, syscall.ERANGE) {
			// It has grown meanwhile.
			continue
		}
		if err != nil {
			return nil, err
		}
		list := make([]ACLEntry, count)
		for i := range list {
			list[i] = ACLEntry{ACLTag(found[i].tag), uint32(found[i].id), uint32(found[i].permissions)}
		}
		return list, nil
	}
}

// SetACL sets an access control list; without entries it is removed. The permissions of the file
// follow the access list. In it stand the owner, users, the group, groups, the mask and others, in
// this order; where users or groups are named there has to be a mask.
func (f *FS) SetACL(name string, kind ACLKind, list []ACLEntry) error {
	entries := make([]C.struct_extant_acl_entry, len(list)+1)
	for i, entry := range list {
		entries[i].tag = C.uint32_t(entry.Tag)
		entries[i].id = C.uint32_t(entry.ID)
		entries[i].permissions = C.uint32_t(entry.Permissions)
	}
	return f.change("setacl", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_set_acl(fs, name, C.uint32_t(kind), &entries[0], C.size_t(len(list)))
	})
}

// SetProject changes the project of a file, by which space is counted.
func (f *FS) SetProject(name string, project uint32) error {
	return f.change("setproject", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_set_project(fs, name, C.uint32_t(project))
	})
}

// QuotaKind says of what a quota is.
type QuotaKind uint32

// Of what a quota is.
const (
	QuotaUser    QuotaKind = C.EXTANT_QUOTA_USER
	QuotaGroup   QuotaKind = C.EXTANT_QUOTA_GROUP
	QuotaProject QuotaKind = C.EXTANT_QUOTA_PROJECT
)

// Limits are what may be used; 0 is no limit.
type Limits struct {
	Soft, Hard uint64
	// GraceEnds is when the soft limit becomes hard; zero while it is kept. [FS.SetQuota] does not
	// look at it.
	GraceEnds time.Time
}

// Quota is what a user, group or project uses and may use: space in bytes.
type Quota struct {
	ID            uint32
	Space, Inodes uint64
	SpaceLimits   Limits
	InodeLimits   Limits
}

func quotaOf(found *C.struct_extant_quota) Quota {
	limits := func(soft, hard, ends C.uint64_t) Limits {
		all := Limits{Soft: uint64(soft), Hard: uint64(hard)}
		if ends != 0 {
			all.GraceEnds = time.Unix(int64(ends), 0)
		}
		return all
	}
	return Quota{
		ID:          uint32(found.id),
		Space:       uint64(found.space),
		Inodes:      uint64(found.inodes),
		SpaceLimits: limits(found.space_soft, found.space_hard, found.space_grace_ends),
		InodeLimits: limits(found.inode_soft, found.inode_hard, found.inode_grace_ends),
	}
}

// quota calls C with the handle, where no name is in play.
func (f *FS) quota(op string, do func(*C.extant_fs) C.int64_t) (int64, error) {
	result, err := f.with(do)
	return result, pathError(op, ".", err)
}

// Quota tells what a user, group or project uses and may use. Where the file system does not count
// it, errors.Is finds syscall.EOPNOTSUPP.
func (f *FS) Quota(kind QuotaKind, id uint32) (Quota, error) {
	var found C.struct_extant_quota
	_, err := f.quota("quota", func(fs *C.extant_fs) C.int64_t {
		return C.int64_t(C.extant_get_quota(fs, C.uint32_t(kind), C.uint32_t(id), &found))
	})
	if err != nil {
		return Quota{}, err
	}
	return quotaOf(&found), nil
}

// Quotas tells it of all users, groups or projects, by ascending ID.
func (f *FS) Quotas(kind QuotaKind) ([]Quota, error) {
	found := make([]C.struct_extant_quota, 64)
	for {
		count, err := f.quota("quota", func(fs *C.extant_fs) C.int64_t {
			return C.extant_get_quotas(fs, C.uint32_t(kind), &found[0], C.size_t(len(found)))
		})
		if err != nil {
			return nil, err
		}
		if count > int64(len(found)) {
			found = make([]C.struct_extant_quota, count)
			continue
		}
		all := make([]Quota, count)
		for i := range all {
			all[i] = quotaOf(&found[i])
		}
		return all, nil
	}
}

// SetQuota sets the limits of a user, group or project: of quota, those and the ID count.
func (f *FS) SetQuota(kind QuotaKind, quota Quota) error {
	inC := C.struct_extant_quota{
		id:         C.uint32_t(quota.ID),
		space_soft: C.uint64_t(quota.SpaceLimits.Soft),
		space_hard: C.uint64_t(quota.SpaceLimits.Hard),
		inode_soft: C.uint64_t(quota.InodeLimits.Soft),
		inode_hard: C.uint64_t(quota.InodeLimits.Hard),
	}
	_, err := f.quota("setquota", func(fs *C.extant_fs) C.int64_t {
		return C.int64_t(C.extant_set_quota(fs, C.uint32_t(kind), &inC))
	})
	return err
}
