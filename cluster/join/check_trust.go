package join

import (
	"errors"
	"fmt"

	"subctl/broker"
)

// checkTrust refuses a join file of another administrator than the one whose key this cluster
// has pinned, and of another administrator than the broker's.
func checkTrust(r request) ([]string, error) {
	var errs []error
	has := r.file.Administrator.String()
	if t := r.member.Trust; t != nil && t.Administrator != r.file.Administrator {
		errs = append(
			errs,
			fmt.Errorf(
				"this cluster trusts the administrator's key %s, which it pinned when it joined, and the key of the join file is %s: "+
					"use a join file of that administrator, or run subctl uninstall first to trust another one",
				t.Administrator,
				has,
			),
		)
	}
	if want := r.broker.Broker.Annotations[broker.AdministratorAnnotation]; want != "" && want != has {
		errs = append(
			errs,
			fmt.Errorf(
				"the administrator's key in the join file, %s, is not the key with which the broker was deployed, %.64s: "+
					"the other clusters would refuse this cluster; get a new file from subctl deploy-broker or subctl invite",
				has,
				want,
			),
		)
	}
	return nil, errors.Join(errs...)
}
