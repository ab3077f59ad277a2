//! The methods that have one answer.

use std::sync::Arc;

use tonic::Status;

use super::{Served, status as status_of};
use crate::api::{Compare, LeaseId, Operation, Transaction};
use crate::error::StoreError;
use crate::machine::Machine;
use crate::wire::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, CompactionResponse, CompareMessage,
    CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseOp, StatusRequest, StatusResponse, TargetUnion,
    TxnRequest, TxnResponse, prefix_end, revision,
};

type Answered<A> = Result<A, Status>;

/// Runs something on the state; the answer waits until all that it changed is durable.
async fn on_machine<A: Send + 'static>(
    served: &Served,
    run: impl FnOnce(&mut Machine, u64) -> Answered<A> + Send + 'static,
) -> Answered<(A, u64)> {
    let asked = served.store.ask(move |machine, now_ns| {
        let answer = run(machine, now_ns);
        Ok(answer.map(|answer| (answer, machine.revision())))
    });
    asked.await.map_err(status_of)?
}

/// Where a range ends: `None` is nowhere, and no end is just the key.
fn range_end(key: &[u8], range_end: &[u8]) -> Option<Vec<u8>> {
    match range_end {
        [] => Some([key, &[0]].concat()),
        [0] => None,
        end => Some(end.to_vec()),
    }
}

fn read(machine: &Machine, request: &RangeRequest) -> Answered<RangeResponse> {
    let asked = revision(request.revision);
    if asked > machine.revision() {
        return Err(Status::out_of_range("etcdserver: mvcc: required revision is a future revision"));
    }
    if asked != 0 && asked < machine.revision() {
        return Err(Status::out_of_range("etcdserver: mvcc: required revision has been compacted"));
    }
    let end = range_end(&request.key, &request.range_end);
    // All in one page otherwise: there is no older state that the next page could come from.
    let limit = if request.limit == 1 { 1 } else { usize::MAX };
    let (items, more) = machine.range(&request.key, end.as_deref(), limit);
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let mut answer = RangeResponse { header: None, items: Vec::new(), more, count };
    if !request.count_only {
        answer.items = items.into_iter().map(Into::into).collect();
        if request.keys_only {
            answer.items.iter_mut().for_each(|item| item.value.clear());
        }
    }
    Ok(answer)
}

pub(super) async fn range(served: Arc<Served>, request: RangeRequest) -> Answered<RangeResponse> {
    let (answer, revision) = on_machine(&served, move |machine, _| read(machine, &request)).await?;
    Ok(RangeResponse { header: Some(served.header(revision)), ..answer })
}

pub(super) async fn put(served: Arc<Served>, request: PutRequest) -> Answered<PutResponse> {
    let run = move |machine: &mut Machine, _| change(machine, vec![Request::Put(request)]);
    let (_, revision) = on_machine(&served, run).await?;
    Ok(PutResponse { header: Some(served.header(revision)) })
}

pub(super) async fn delete_range(
    served: Arc<Served>,
    request: DeleteRangeRequest,
) -> Answered<DeleteRangeResponse> {
    let run = move |machine: &mut Machine, _| change(machine, vec![Request::DeleteRange(request)]);
    let (responses, revision) = on_machine(&served, run).await?;
    let deleted = responses.first().map_or(0, |response| match response {
        Response::DeleteRange(response) => response.deleted,
        _ => 0,
    });
    Ok(DeleteRangeResponse { header: Some(served.header(revision)), deleted })
}

/// Makes the changes of requests that all change something, as one revision.
fn change(machine: &mut Machine, requests: Vec<Request>) -> Answered<Vec<Response>> {
    let mut operations = Vec::new();
    let mut responses = Vec::new();
    for request in requests {
        match request {
            Request::Put(put) => {
                let lease = (put.lease != 0).then_some(LeaseId(put.lease));
                operations.push(Operation::Put { key: put.key, value: put.value, lease });
                responses.push(Response::Put(PutResponse { header: None }));
            }
            Request::DeleteRange(delete) => {
                let end = range_end(&delete.key, &delete.range_end);
                let (items, _) = machine.range(&delete.key, end.as_deref(), usize::MAX);
                let deleted = i64::try_from(items.len()).unwrap_or(i64::MAX);
                operations.extend(items.into_iter().map(|item| Operation::Delete { key: item.key }));
                responses.push(Response::DeleteRange(DeleteRangeResponse { header: None, deleted }));
            }
            Request::Range(_) => {
                return Err(Status::unimplemented("a transaction that changes cannot read here"));
            }
        }
    }
    let transaction = Transaction { compares: Vec::new(), operations };
    machine.transaction(&transaction).map_err(status_of)?;
    Ok(responses)
}

fn compare(message: CompareMessage) -> Answered<Compare> {
    let single = message.range_end.is_empty();
    let equal = single && message.result == CompareResult::Equal as i32;
    let less = message.result == CompareResult::Less as i32;
    let is = |target: CompareTarget| message.target == target as i32;
    let number = match &message.union {
        Some(TargetUnion::CreateRevision(number)) if is(CompareTarget::Create) => Some(*number),
        Some(TargetUnion::ModRevision(number)) if is(CompareTarget::Mod) => Some(*number),
        // Zero may be left out.
        None => Some(0),
        Some(_) => None,
    };
    match number {
        Some(number) if equal && is(CompareTarget::Create) => {
            Ok(Compare::CreateRevision { key: message.key, revision: revision(number) })
        }
        Some(number) if equal && is(CompareTarget::Mod) => {
            Ok(Compare::ModRevision { key: message.key, revision: revision(number) })
        }
        Some(number)
            if less
                && number > 0
                && is(CompareTarget::Mod)
                && message.range_end == prefix_end(&message.key) =>
        {
            Ok(Compare::NoneAfter { prefix: message.key, revision: revision(number - 1) })
        }
        _ => Err(Status::unimplemented(
            "only the equality of create and mod revisions is compared here, and whether those of a prefix are less",
        )),
    }
}

fn run_transaction(machine: &mut Machine, request: TxnRequest) -> Answered<(bool, Vec<Response>)> {
    let compares = request.compare.into_iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let checked = Transaction { compares, operations: Vec::new() };
    checked.check().map_err(status_of)?;
    let succeeded = checked.compares.iter().all(|compare| machine.holds(compare));
    let chosen: Vec<RequestOp> = if succeeded { request.success } else { request.failure };
    let requests: Vec<Request> = chosen.into_iter().filter_map(|operation| operation.request).collect();
    let only_reads = requests.iter().all(|request| matches!(request, Request::Range(_)));
    if !only_reads {
        return Ok((succeeded, change(machine, requests)?));
    }
    let mut responses = Vec::new();
    for request in &requests {
        if let Request::Range(request) = request {
            responses.push(Response::Range(read(machine, request)?));
        }
    }
    Ok((succeeded, responses))
}

pub(super) async fn transaction(served: Arc<Served>, request: TxnRequest) -> Answered<TxnResponse> {
    let run = move |machine: &mut Machine, _| run_transaction(machine, request);
    let ((succeeded, responses), revision) = on_machine(&served, run).await?;
    let responses = responses.into_iter().map(|response| ResponseOp { response: Some(response) }).collect();
    Ok(TxnResponse { header: Some(served.header(revision)), succeeded, responses })
}

pub(super) async fn compact(served: Arc<Served>, request: CompactionRequest) -> Answered<CompactionResponse> {
    let run = move |machine: &mut Machine, _| machine.compact(revision(request.revision)).map_err(status_of);
    let ((), revision) = on_machine(&served, run).await?;
    Ok(CompactionResponse { header: Some(served.header(revision)) })
}

pub(super) async fn lease_grant(
    served: Arc<Served>,
    request: LeaseGrantRequest,
) -> Answered<LeaseGrantResponse> {
    let run = move |machine: &mut Machine, now_ns| {
        let wanted = (request.id != 0).then_some(LeaseId(request.id));
        machine.lease_grant(wanted, revision(request.seconds), now_ns).map_err(status_of)
    };
    let (lease, revision) = on_machine(&served, run).await?;
    Ok(LeaseGrantResponse {
        header: Some(served.header(revision)),
        id: lease.id.0,
        seconds: crate::wire::number(lease.seconds),
        error: String::new(),
    })
}

pub(super) async fn lease_revoke(
    served: Arc<Served>,
    request: LeaseRevokeRequest,
) -> Answered<LeaseRevokeResponse> {
    let lease = LeaseId(request.id);
    let run = move |machine: &mut Machine, _| match machine.lease_revoke(lease) {
        true => Ok(()),
        false => Err(status_of(StoreError::LeaseLost { lease })),
    };
    let ((), revision) = on_machine(&served, run).await?;
    Ok(LeaseRevokeResponse { header: Some(served.header(revision)) })
}

pub(super) async fn status(served: Arc<Served>, _: StatusRequest) -> Answered<StatusResponse> {
    let ((), revision) = on_machine(&served, |_, _| Ok(())).await?;
    let version = format!("3.4.0+coquina-{}", env!("CARGO_PKG_VERSION"));
    let header = served.header(revision);
    Ok(StatusResponse { leader: header.member_id, header: Some(header), version })
}

pub(super) async fn authenticate(_: Arc<Served>, _: AuthenticateRequest) -> Answered<AuthenticateResponse> {
    Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
}
