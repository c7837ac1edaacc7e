package look

import (
	"subctl/agent/role"
	"subctl/services"
	"subctl/services/discoverer"
)

// RefusedServices returns which export records of other clusters, or parts of them, the cluster
// does not import, as the agent of service discovery decides. It takes a second where there are
// thousands, so it decides once.
func (s Site) RefusedServices() []services.Refusal {
	if s.Services == nil || s.Members == nil {
		return nil
	}
	s.Services.once.Do(func() { s.Services.refused = discoverer.RefusedServices(s.servicesSnapshot()) })
	return s.Services.refused
}

// servicesSnapshot returns what was read, as the agent of service discovery sees it.
func (s Site) servicesSnapshot() role.Snapshot {
	objs := []role.Object{s.Submariner}
	for _, c := range s.Members.Clusters {
		objs = append(objs, &c)
	}
	objs = appendObjects(objs, s.Nodes)
	objs = appendObjects(objs, s.Services.Namespaces)
	objs = appendObjects(objs, s.Services.Exports)
	objs = appendObjects(objs, s.Services.Imports)
	objs = appendObjects(objs, s.Services.Pages)
	objs = appendObjects(objs, s.Services.Services)
	objs = appendObjects(objs, s.Services.Slices)
	snapshot := role.NewSnapshot("", objs...)
	snapshot.Now = s.Now
	return snapshot
}

// appendObjects appends the objects of a list.
func appendObjects[T any, P interface {
	*T
	role.Object
}](to []role.Object, list []T) []role.Object {
	for i := range list {
		to = append(to, P(&list[i]))
	}
	return to
}
