#include "Group.h"

using namespace prefill::bench;

Result<std::unique_ptr<Group>> Group::create(const std::vector<Row> &rows,
                                             ModuleStore &store,
                                             PeakProbe &probe) {
  switch (rows.front().kind) {
  case RowKind::gemm:
    return createGemmGroup(rows, store, probe);
  case RowKind::attention:
    return createAttentionGroup(rows, store, probe);
  case RowKind::startup:
    return createStartupGroup(rows, store, probe);
  case RowKind::model:
  case RowKind::decode:
    break;
  }
  return createModelGroup(rows, store, probe);
}
