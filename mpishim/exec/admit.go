package exec

import "context"

// Admit returns the id of the local user that a vouched user of another node
// becomes here, by the rules of sessions: for services that let in whoever may
// run commands. The name may come from a peer.
func Admit(ctx context.Context, p Policy, c Caller) (uid uint32, err error) {
	if err := checkName("user", c.User); err != nil {
		return 0, err
	}
	acc, err := admit(ctx, p, c, "")
	return acc.uid, err
}

// admit maps a caller to an account here that it may use.
func admit(ctx context.Context, p Policy, c Caller, login string) (account, error) {
	name, mapped, err := p.Local(c, login)
	if err != nil {
		return account{}, err
	}
	acc, err := lookupAccount(ctx, name)
	if err != nil {
		return account{}, err
	}
	return acc, acc.allowed(p, mapped)
}
